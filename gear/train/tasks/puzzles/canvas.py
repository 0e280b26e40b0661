"""Puzzles as tensors: grids of all sizes in the corner of a square canvas, the rest OUTSIDE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gear.train.tasks.puzzles.families import Grid
from gear.train.tasks.puzzles.puzzle import Puzzle

OUTSIDE = 10  # the colour of a cell that belongs to no grid
UNKNOWN = 11  # of the answer
NUM_COLOURS = 12


@dataclass(frozen=True)
class Asked:
    """B puzzles of up to K pairs on canvases of S cells a side; the query stands last.

    Attributes:
        inputs: int64 [B, K, S, S].
        outputs: as inputs; that of the query is UNKNOWN, and pairs that are not there are OUTSIDE.
        answers: int64 [B, S, S].
    """

    inputs: Tensor
    outputs: Tensor
    answers: Tensor


def on_canvas(grid: Grid, side: int) -> NDArray[np.uint8]:
    canvas = np.full((side, side), OUTSIDE, np.uint8)
    canvas[: grid.shape[0], : grid.shape[1]] = grid
    return canvas


def ask(inputs: Tensor, outputs: Tensor, there: Tensor, query: Tensor) -> Asked:
    """Makes pair `query` of each puzzle the query.

    inputs, outputs: uint8 [B, K, S, S]; there: bool [B, K], the pairs that exist, which stand
    first; query: int64 [B].
    """
    rows = torch.arange(len(query), device=query.device)
    hidden = there[:, :, None, None].logical_not()
    inputs = inputs.long().masked_fill(hidden, OUTSIDE)
    outputs = outputs.long().masked_fill(hidden, OUTSIDE)
    last = torch.arange(there.shape[1], device=query.device).expand(there.shape).clone()
    last[:, -1] = query  # the query and what stands last change places
    last[rows, query] = there.shape[1] - 1
    inputs, outputs = inputs[rows[:, None], last], outputs[rows[:, None], last].clone()
    answers = outputs[:, -1].clone()
    outputs[:, -1] = UNKNOWN
    return Asked(inputs, outputs, answers)


def ask_of(puzzles: Sequence[Puzzle], pairs: int, side: int) -> Asked:
    """Their own queries, after the first `pairs` - 1 of their demonstrations."""
    shape = (len(puzzles), pairs, side, side)
    inputs, outputs = np.full(shape, OUTSIDE, np.uint8), np.full(shape, OUTSIDE, np.uint8)
    counts = []
    for row, puzzle in enumerate(puzzles):
        shown = (*puzzle.demonstrations[: pairs - 1], puzzle.query)
        counts.append(len(shown))
        for at, (given, wanted) in enumerate(shown):
            inputs[row, at], outputs[row, at] = on_canvas(given, side), on_canvas(wanted, side)
    length = torch.tensor(counts)
    there = torch.arange(pairs) < length[:, None]
    return ask(torch.from_numpy(inputs), torch.from_numpy(outputs), there, length - 1)
