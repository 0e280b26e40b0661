"""Means over the ranks of what each of them has counted by itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from gear.train.ranks import Ranks


class Means(Metric):
    """The mean of `size` quantities; ranks count by the number of their values, float32 [size].

    torchmetrics' own synchronisation asks torch.distributed. This one asks the ranks, whatever
    launched them and averages their gradients: one that has ended ends the others' wait.
    """

    full_state_update = False
    sums: Tensor
    count: Tensor

    def __init__(self, size: int, ranks: Ranks) -> None:
        def of_each_rank(value: Tensor, group: Any = None) -> list[Tensor]:
            return [torch.tensor(each) for each in ranks.exchange(value.tolist())]

        super().__init__(dist_sync_fn=of_each_rank, distributed_available_fn=lambda: ranks.size > 1)
        self.add_state("sums", torch.zeros(size), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, sums: Tensor, count: int) -> None:
        """Sums of `count` values, float32 [size]."""
        self.sums += sums
        self.count += count

    def compute(self) -> Tensor:
        """Collective."""
        return self.sums / self.count
