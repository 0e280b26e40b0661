"""Trains a deep learning recommendation model of the published shape (Naumov et al.,
arXiv:1906.00091) on made-up clicks: a network for numbers, embedding tables that are shared out to
the ranks, the dot products of all pairs of vectors, and a network on top of these."""

from __future__ import annotations

import itertools
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from progress import Progress, add_options
from ranks import Failed, Ranks, parser_of, run
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def sizes(text: str) -> list[int]:
    """Widths of layers, as in 13-512-256."""
    found = text.split("-")
    if len(found) < 2 or not all(size.isdigit() and int(size) for size in found):
        raise ArgumentTypeError(f"{text!r}: write the widths of two layers or more as 13-512-256")
    return [int(size) for size in found]


def parser() -> ArgumentParser:
    parser = parser_of(__doc__)
    add_options(parser, steps=400, batch_size=256, rate=0.1, below=0.97)
    shape = parser.add_argument_group(
        "shape (the defaults are those published for Criteo's clicks)"
    )
    shape.add_argument(
        "--bottom-mlp",
        type=sizes,
        default="13-512-256-64-16",
        metavar="SIZES",
        help="widths of the layers on the numbers; the last is that of an embedding, too",
    )
    shape.add_argument(
        "--top-mlp",
        type=sizes,
        default="512-256-1",
        metavar="SIZES",
        help="widths of the layers on the dot products, without their number",
    )
    shape.add_argument("--tables", type=int, default=26, help="of embeddings; all ranks share them")
    shape.add_argument("--rows", type=int, default=1000, help="of a table")
    shape.add_argument("--lookups", type=int, default=1, help="rows of a table an item, summed up")
    return parser


def mlp(widths: list[int], *, ends_with_relu: bool) -> nn.Sequential:
    """Weights and biases are drawn as in the published program."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        linear = nn.Linear(before, after)
        nn.init.normal_(linear.weight, std=(2 / (before + after)) ** 0.5)
        nn.init.normal_(linear.bias, std=(1 / after) ** 0.5)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*(layers if ends_with_relu else layers[:-1]))


class Exchange(torch.autograd.Function):
    """all_to_all of vectors of unequal shares; their gradients go the same way back."""

    @staticmethod
    def forward(
        ctx: Any, sent: Tensor, to_each: list[int], from_each: list[int], group: Any
    ) -> Tensor:
        ctx.to_each, ctx.from_each, ctx.group = to_each, from_each, group
        came = sent.new_empty(sum(from_each))
        dist.all_to_all_single(came, sent, from_each, to_each, group=group)
        return came

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        back = gradient.new_empty(sum(ctx.to_each))
        dist.all_to_all_single(
            back, gradient.contiguous(), ctx.to_each, ctx.from_each, group=ctx.group
        )
        return back, None, None, None


class Tables(nn.Module):
    """The embedding tables of this rank: every so-manieth of all of them. It looks up the items of
    all ranks in its own tables, and returns what all tables say of this rank's items. The ranks
    have as many tables or one less, so what they exchange is uneven.

    Args:
        tables: of all ranks together.
        width: of a row.
    """

    def __init__(self, ranks: Ranks, tables: int, rows: int, width: int, seed: int) -> None:
        super().__init__()
        self.group = ranks.group
        self.width = width
        self.owned = [len(range(rank, tables, ranks.size)) for rank in range(ranks.size)]
        bound = rows**-0.5
        self.weights = nn.ParameterList()
        for table in range(ranks.rank, tables, ranks.size):
            own = torch.Generator().manual_seed(seed + table)  # whoever holds it
            drawn = torch.rand(rows, width, generator=own) * 2 * bound - bound
            self.weights.append(nn.Parameter(drawn.to(ranks.device)))

    def forward(self, chosen: Tensor) -> Tensor:
        """Rows of this rank's tables, for the items of all ranks, to all tables' vectors.

        Args:
            chosen: int64, [tables of this rank, items of all ranks, lookups].

        Returns:
            float32, [items of this rank, tables of all ranks, width], the tables by owner.
        """
        ranks = len(self.owned)
        items = chosen.shape[1] // ranks
        found = torch.stack(
            [F.embedding_bag(c, w, mode="sum") for c, w in zip(chosen, self.weights, strict=True)]
        )  # [own tables, all items, width]
        sent = found.reshape(len(found), ranks, items, self.width).transpose(0, 1)
        one_table = items * self.width
        to_each = [len(found) * one_table] * ranks
        from_each = [count * one_table for count in self.owned]
        came: Tensor = Exchange.apply(sent.reshape(-1).contiguous(), to_each, from_each, self.group)
        return came.reshape(sum(self.owned), items, self.width).transpose(0, 1)


class Dense(nn.Module):
    """What all ranks hold alike: both networks, and the dot products between them."""

    def __init__(self, bottom: list[int], top: list[int], tables: int) -> None:
        super().__init__()
        vectors = tables + 1
        self.bottom = mlp(bottom, ends_with_relu=True)
        self.top = mlp([bottom[-1] + vectors * (vectors - 1) // 2, *top], ends_with_relu=False)
        self.register_buffer("pairs", torch.tril_indices(vectors, vectors, -1), persistent=False)

    def forward(self, given: Tensor, vectors: Tensor) -> Tensor:
        """[items, numbers], [items, tables, width] -> [items], the logits of a click."""
        dense = self.bottom(given)
        every = torch.cat([dense.unsqueeze(1), vectors], 1)
        products = every @ every.transpose(1, 2)
        first, second = self.get_buffer("pairs")
        said = self.top(torch.cat([dense, products[:, first, second]], 1))
        return said.squeeze(1)  # type: ignore[no-any-return]


class Clicks:
    """Made-up ones: an item is clicked by a chance that a weight of each number and a worth of each
    row decide, so that there is something to learn. Every rank draws the batch of all ranks."""

    def __init__(self, options: Namespace) -> None:
        self._shape = (options.batch_size, options.tables, options.lookups)
        self._generator = torch.Generator().manual_seed(options.seed)
        self._weights = torch.randn(options.bottom_mlp[0], generator=self._generator)
        self._worth = torch.randn(options.tables, options.rows, generator=self._generator)

    def draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """Numbers [items, numbers], rows [tables, items, lookups], clicks of 0 and 1 [items]."""
        items, tables, lookups = self._shape
        numbers = torch.randn(items, len(self._weights), generator=self._generator)
        rows = torch.randint(
            self._worth.shape[1], (tables, items, lookups), generator=self._generator
        )
        worth = self._worth.gather(1, rows.flatten(1)).reshape(rows.shape).sum(2).sum(0)
        said = numbers @ self._weights / 2 + worth / (tables * lookups) ** 0.5
        clicked = torch.rand(items, generator=self._generator) < said.sigmoid()
        return numbers, rows, clicked.float()


def train(options: Namespace, ranks: Ranks) -> list[float]:
    """The mean loss over the ranks of each step."""
    share = ranks.share(options.batch_size)
    width = options.bottom_mlp[-1]
    if options.tables < ranks.size:
        raise Failed(f"--tables {options.tables}: each of {ranks.size} ranks holds one or more")
    if options.top_mlp[-1] != 1:
        raise Failed(f"--top-mlp: its last width is {options.top_mlp[-1]}, and a click is 1 number")
    torch.manual_seed(options.seed)
    tables = Tables(ranks, options.tables, options.rows, width, options.seed)
    dense = DistributedDataParallel(
        Dense(options.bottom_mlp, options.top_mlp, options.tables).to(ranks.device),
        process_group=ranks.group,
    )
    held = ", ".join(map(str, tables.owned))
    ranks.say(f"{options.tables} tables of {options.rows} rows by {width}; ranks hold {held}")
    optimizer = torch.optim.SGD([*tables.parameters(), *dense.parameters()], lr=options.lr)
    clicks = Clicks(options)
    # As Tables returns them, by owner.
    order = [t for rank in range(ranks.size) for t in range(rank, options.tables, ranks.size)]
    back = torch.tensor(order).argsort().to(ranks.device)
    own = slice(ranks.rank * share, (ranks.rank + 1) * share)
    progress = Progress(ranks, options, "items")
    done = False
    while not done:
        numbers, rows, clicked = clicks.draw()
        vectors = tables(rows[ranks.rank :: ranks.size].to(ranks.device))[:, back]
        said = dense(numbers[own].to(ranks.device), vectors)
        loss = F.binary_cross_entropy_with_logits(said, clicked[own].to(ranks.device))
        optimizer.zero_grad()
        loss.backward()
        for weight in tables.parameters():  # sums over the ranks, where DDP takes means
            assert weight.grad is not None
            weight.grad /= ranks.size
        optimizer.step()
        done = progress.step(loss)
    progress.finish(dense)
    return progress.losses


if __name__ == "__main__":
    sys.exit(run("dlrm", parser(), train))
