"""A recommendation model: each rank holds some of the embedding tables, and all hold the same small
networks. What a rank looks up for the others' items goes to them by all_to_all, unevenly."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.nn.functional import all_to_all_single

from process_group.programs.training import averaged, mean

TABLES, ROWS, WIDTH, ITEMS = 5, 100, 8, 6  # five tables: no two or four ranks divide them


class Tables(nn.Module):
    """This rank's tables; looks up the items of all ranks, and returns what all tables say of this
    rank's."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        self.owned = [len(range(r, TABLES, size)) for r in range(size)]
        every = torch.randn(TABLES, ROWS, WIDTH, generator=torch.Generator().manual_seed(8))
        self.weight = nn.Parameter(every[rank::size].clone())

    def forward(self, items: Tensor) -> Tensor:
        """items: (tables of this rank, items of all ranks) -> (items of this rank, values)."""
        size = len(self.owned)
        found = torch.stack([F.embedding(i, w) for i, w in zip(items, self.weight, strict=True)])
        sent = found.reshape(len(found), size, ITEMS, WIDTH).transpose(0, 1).reshape(-1)
        own = ITEMS * WIDTH
        shares = [count * own for count in self.owned]
        received = all_to_all_single(
            torch.empty(TABLES * own),
            sent.contiguous(),
            output_split_sizes=shares,
            input_split_sizes=[len(found) * own] * size,
            group=self.group,
        )
        return received.reshape(TABLES, ITEMS, WIDTH).transpose(0, 1).reshape(ITEMS, -1)


def dlrm(group: Any) -> list[float]:
    torch.manual_seed(9)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    tables = Tables(group)
    dense = averaged(nn.Sequential(nn.Linear(4, WIDTH), nn.ReLU()), group)
    top = averaged(
        nn.Sequential(nn.Linear((TABLES + 1) * WIDTH, 16), nn.ReLU(), nn.Linear(16, 1)), group
    )
    optimizer = torch.optim.SGD([*tables.parameters(), *dense.parameters(), *top.parameters()], 0.1)
    generator = torch.Generator().manual_seed(10)
    losses = []
    for _ in range(4):
        looked_up = torch.randint(ROWS, (TABLES, size * ITEMS), generator=generator)
        numbers = torch.randn(size, ITEMS, 4, generator=generator)[rank]
        clicked = torch.randint(2, (size, ITEMS), generator=generator)[rank].float()
        said = top(torch.cat([tables(looked_up[rank::size]), dense(numbers)], 1)).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(said, clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(mean(loss.detach(), group))
    return losses
