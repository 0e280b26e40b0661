"""Trains a small convolutional network on digits, which DistributedSampler shares out to the ranks:
on MNIST's files if a folder of them is given, else on digits that the program draws."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from digits import drawn, read
from progress import Progress, add_options
from ranks import Ranks, parser_of, run
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TESTED_AT_ONCE = 500


def parser() -> ArgumentParser:
    parser = parser_of(__doc__)
    add_options(parser, steps=200, batch_size=64, rate=0.05, below=0.5)
    data = parser.add_argument_group("data")
    data.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="of MNIST's four files: train-images-idx3-ubyte, train-labels-idx1-ubyte, and two "
        "that begin with t10k; each as it is or compressed as .gz (default: drawn digits)",
    )
    data.add_argument("--drawn", type=int, default=8000, help="how many digits to draw")
    return parser


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def train(options: Namespace, ranks: Ranks) -> list[float]:
    """The mean loss over the ranks of each step."""
    share = ranks.share(options.batch_size)
    (images, labels), tested = ranks.together(lambda: _digits(options))
    origin = options.data or "drawn"
    ranks.say(f"{len(images)} digits to learn and {len(tested[0])} to be tested by: {origin}")
    torch.manual_seed(options.seed)
    model = DistributedDataParallel(network().to(ranks.device), process_group=ranks.group)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    progress = Progress(ranks, options, "images")
    for inputs, wanted in _batches(TensorDataset(images, labels), share, options.seed, ranks):
        loss = F.cross_entropy(model(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if progress.step(loss):
            break
    right = _accuracy(model.module, *tested, ranks)
    ranks.say(f"{100 * right:.2f} % of the test's digits are told right")
    progress.finish(model)
    return progress.losses


def _digits(options: Namespace) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Those to learn, and those to be tested by."""
    if options.data is not None:
        return read(options.data, "train"), read(options.data, "test")
    few = max(10, options.drawn // 8)
    return drawn(options.drawn, options.seed), drawn(few, options.seed + 1)


def _batches(
    digits: TensorDataset, share: int, seed: int, ranks: Ranks
) -> Iterator[tuple[Tensor, Tensor]]:
    """Without an end: epoch after epoch, each in an order of its own."""
    sampler: DistributedSampler[Any] = DistributedSampler(digits, ranks.size, ranks.rank, seed=seed)
    loader = DataLoader(digits, share, sampler=sampler)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            yield inputs.to(ranks.device), labels.to(ranks.device)
        epoch += 1


@torch.no_grad()
def _accuracy(model: nn.Module, images: Tensor, labels: Tensor, ranks: Ranks) -> float:
    """Each rank tests its share. Collective."""
    right = torch.zeros((), dtype=torch.float64, device=ranks.device)
    own = slice(ranks.rank, None, ranks.size)
    parts = zip(images[own].split(TESTED_AT_ONCE), labels[own].split(TESTED_AT_ONCE), strict=True)
    for inputs, wanted in parts:
        said = model(inputs.to(ranks.device)).argmax(1)
        right += (said == wanted.to(ranks.device)).sum()
    dist.all_reduce(right, group=ranks.group)
    return float(right) / len(labels)


if __name__ == "__main__":
    sys.exit(run("mnist", parser(), train))
