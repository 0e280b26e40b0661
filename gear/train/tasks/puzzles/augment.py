"""Other puzzles of the same kind: colours are exchanged, and all grids mirrored and turned."""

from __future__ import annotations

import torch
from torch import Tensor

from gear.train.tasks.puzzles.canvas import NUM_COLOURS, OUTSIDE

DRAWS = 13  # for each puzzle: nine colours, three mirrors, the query


def draws(seed: int, update: int, puzzles: Tensor) -> Tensor:
    """Uniform numbers in 0 ... 2^31 - 1, int64 [B, DRAWS].

    Functions of seed, update and the puzzle's number (int64 [B]) alone: the same on any number of
    ranks and after a restart. The mixing is that of MurmurHash3, in int64.
    """
    lanes = torch.arange(DRAWS, device=puzzles.device)
    x = puzzles.long()[:, None] * 0x2545F4914F6CDD1D + lanes * 0x1B873593
    x = x + (seed * 0x9E3779B1 + update * 0xC2B2AE3D) % 2**62
    for constant in (-0x00AE502812AA7333, -0x3B314601E57A13AD):
        x = (x ^ (x >> 33 & 0x7FFFFFFF)) * constant
    return (x ^ (x >> 33 & 0x7FFFFFFF)) >> 16 & 0x7FFFFFFF


def exchange_colours(grids: Tensor, drawn: Tensor) -> Tensor:
    """One permutation of colours 1 to 9 for all grids of a puzzle; int64 [B, K, S, S].

    drawn: int64 [B, 9]. Background, OUTSIDE and UNKNOWN stay.
    """
    table = torch.arange(NUM_COLOURS, device=grids.device).repeat(len(grids), 1)
    table[:, 1:OUTSIDE] = drawn.argsort(1) + 1
    return table.gather(1, grids.flatten(1)).view_as(grids)


def mirror(grids: Tensor, drawn: Tensor) -> Tensor:
    """One of the eight symmetries of the square for all grids of a puzzle, each within its own
    sides; int64 [B, K, S, S].

    drawn: int64 [B, 3]; odd: transposed, turned upside down, its left to its right.
    """
    odd = (drawn % 2 == 1)[:, :, None, None, None]
    grids = torch.where(odd[:, 0], grids.transpose(2, 3), grids)
    place = torch.arange(grids.shape[-1], device=grids.device)
    for axis, (chosen, first) in enumerate(((odd[:, 1], grids[..., 0]), (odd[:, 2], None)), 2):
        first = grids[:, :, 0, :] if first is None else first
        length = (first != OUTSIDE).sum(-1, keepdim=True)  # [B, K, 1]
        other = torch.where(place < length, length - 1 - place, place)  # [B, K, S]
        index = other[..., None] if axis == 2 else other[..., None, :]
        grids = torch.where(chosen, grids.gather(axis, index.expand_as(grids)), grids)
    return grids
