"""How well puzzles are solved, over the puzzles of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from gear.train.ranks import Ranks
from gear.train.tasks.puzzles.canvas import OUTSIDE


class Solved(Metric):
    """Counts, and divides at the end: a mean over ranks' or batches' means would be another number.

    solved            share of the puzzles whose answer is right in every cell and in its size
    accuracy          right cells among the cells of all true answers
    pixel_difference  cells that differ (wrong, missing or surplus) in a puzzle, mean over puzzles

    Cells OUTSIDE of answer and prediction count nowhere, so a larger canvas changes nothing. Ranks
    are asked as in gear.train.record.means.
    """

    full_state_update = False
    counts: Tensor

    def __init__(self, ranks: Ranks) -> None:
        def of_each_rank(value: Tensor, group: Any = None) -> list[Tensor]:
            return [torch.tensor(each) for each in ranks.exchange(value.tolist())]

        super().__init__(dist_sync_fn=of_each_rank, distributed_available_fn=lambda: ranks.size > 1)
        # puzzles, solved ones, cells of answers, right ones, cells that differ
        self.add_state("counts", torch.zeros(5, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, answers: Tensor) -> None:
        """Colours, int64 [B, S, S]."""
        differs = (predicted != answers).flatten(1)
        inside = (answers != OUTSIDE).flatten(1)
        puzzles = torch.tensor(len(answers), device=answers.device)
        solved, cells = (differs.sum(1) == 0).sum(), inside.sum()
        right = (inside & ~differs).sum()
        found = torch.stack([puzzles, solved, cells, right, differs.sum()])
        self.counts += found.to(self.counts.device)

    def compute(self) -> Tensor:
        """Solved, accuracy and pixel difference, float64 [3]; collective."""
        puzzles, solved, cells, right, differ = self.counts.double()
        return torch.stack([solved / puzzles, right / cells, differ / puzzles])
