"""Families of rules: each draws the pairs of a puzzle, whose parameter says what the rule does.

A grid is uint8 [height, width] of colours 0 (background) to 9. A parameter is a tuple: every family
lists all of its own, and `pair` gives an input and an output that show what this one does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

Grid = NDArray[np.uint8]
Rng = np.random.Generator
Parameter = tuple[int, ...]

COLOURS = range(1, 10)
TWO_COLOURS = tuple(permutations(COLOURS, 2))
STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1))  # up, down, left, right
TURNS: tuple[Callable[[Grid], Grid], ...] = (
    *(np.fliplr, np.flipud, np.transpose),
    lambda grid: np.rot90(grid, 2),
    *(lambda grid: np.rot90(grid, 1), lambda grid: np.rot90(grid, 3)),
    lambda grid: np.rot90(grid, 2).T,
)


@dataclass(frozen=True)
class Family:
    """Rules of one kind.

    Attributes:
        parameters: all of them.
        pair: (parameter, height, width, rng) -> input and output; they may be equal by chance.
    """

    parameters: Sequence[Parameter]
    pair: Callable[[Parameter, int, int, Rng], tuple[Grid, Grid]]


def _noise(height: int, width: int, rng: Rng, colours: Sequence[int], share: float) -> Grid:
    """Cells of these colours on so large a share of the background."""
    there = rng.random((height, width)) < share
    return np.where(there, rng.choice(colours, (height, width)), 0).astype(np.uint8)


def _others(*colours: int) -> list[int]:
    return [colour for colour in COLOURS if colour not in colours]


def _recolour(parameter: Parameter, height: int, width: int, rng: Rng) -> tuple[Grid, Grid]:
    """One colour becomes another."""
    before, after = parameter
    grid = _noise(height, width, rng, [before, *rng.choice(_others(before, after), 2)], 0.5)
    return grid, np.where(grid == before, after, grid).astype(np.uint8)


def _mirror(parameter: Parameter, height: int, width: int, rng: Rng) -> tuple[Grid, Grid]:
    """The grid is mirrored or turned."""
    grid = _noise(height, width, rng, list(rng.choice(COLOURS, 3)), 0.5)
    return grid, TURNS[parameter[0]](grid)


def _move(parameter: Parameter, height: int, width: int, rng: Rng) -> tuple[Grid, Grid]:
    """Cells of a colour move until they touch a wall, each other or the edge."""
    direction, mover = parameter
    wall = int(rng.choice(_others(mover)))
    grid = _noise(height, width, rng, [mover, wall], 0.25)
    turn = (1, 3, 0, 2)[direction]  # up, down, left, right: all become left
    output = np.rot90(grid, turn).copy()
    for row in output:
        free = 0
        for at, colour in enumerate(row.tolist()):
            if colour == mover:
                row[at], row[free] = 0, mover
            if colour:
                free = free + 1 if colour == mover else at + 1
    return grid, np.rot90(output, -turn).copy()


def _fill(parameter: Parameter, height: int, width: int, rng: Rng) -> tuple[Grid, Grid]:
    """What a closed outline surrounds is filled; one with a gap stays empty."""
    line, inside = parameter
    grid = np.zeros((height, width), np.uint8)
    for _ in range(max(1, height * width // 40)):
        tall, wide = (int(rng.integers(3, max(4, min(7, side + 1)))) for side in (height, width))
        top, left = (
            int(rng.integers(0, max(1, s - t + 1))) for s, t in ((height, tall), (width, wide))
        )
        room = grid[max(0, top - 1) : top + tall + 1, max(0, left - 1) : left + wide + 1]
        if room.any():
            continue
        box = grid[top : top + tall, left : left + wide]
        box[:], box[1:-1, 1:-1] = line, 0
        if rng.random() < 0.3:
            box[0, int(rng.integers(1, max(2, wide - 1)))] = 0
    return grid, np.where(_enclosed(grid), inside, grid).astype(np.uint8)


def _enclosed(grid: Grid) -> NDArray[np.bool_]:
    """Background from which no way leads to the edge."""
    free = np.pad(grid == 0, 1, constant_values=True)
    outside = np.zeros_like(free)
    outside[0, 0] = True
    while True:
        wider = outside.copy()
        wider[1:] |= outside[:-1]
        wider[:-1] |= outside[1:]
        wider[:, 1:] |= outside[:, :-1]
        wider[:, :-1] |= outside[:, 1:]
        wider &= free
        if (wider == outside).all():
            return np.asarray((free & ~outside)[1:-1, 1:-1])
        outside = wider


def _count(parameter: Parameter, height: int, width: int, rng: Rng) -> tuple[Grid, Grid]:
    """A row as long as there are cells of one colour, in another."""
    counted, drawn = parameter
    number = int(rng.integers(1, min(width, height * width // 2) + 1))
    grid = _noise(height, width, rng, _others(counted, drawn)[:3], 0.3)
    grid.flat[rng.choice(height * width, number, replace=False)] = counted
    return grid, np.full((1, number), drawn, np.uint8)


def _copy(parameter: Parameter, height: int, width: int, rng: Rng) -> tuple[Grid, Grid]:
    """The pattern in the corner is repeated wherever its marker stands."""
    marker, body = parameter
    grid = np.zeros((height, width), np.uint8)
    pattern = np.where(rng.random((2, 2)) < 0.6, body, 0).astype(np.uint8)
    pattern[0, 0] = marker
    grid[:2, :2] = pattern
    output = grid.copy()
    for _ in range(max(1, height * width // 20)):
        row, column = int(rng.integers(0, height - 1)), int(rng.integers(0, width - 1))
        if not output[max(0, row - 1) : row + 3, max(0, column - 1) : column + 3].any():
            grid[row, column] = marker
            output[row : row + 2, column : column + 2] = pattern
    return grid, output


def _extend(parameter: Parameter, height: int, width: int, rng: Rng) -> tuple[Grid, Grid]:
    """From each dot of a colour a line runs to the edge, over background only."""
    direction, colour = parameter
    grid = _noise(height, width, rng, [colour, int(rng.choice(_others(colour)))], 0.1)
    output, (down, right) = grid.copy(), STEPS[direction]
    for row, column in np.argwhere(grid == colour).tolist():
        row, column = row + down, column + right
        while 0 <= row < height and 0 <= column < width and grid[row, column] == 0:
            output[row, column] = colour
            row, column = row + down, column + right
    return grid, output


def _outline(parameter: Parameter, height: int, width: int, rng: Rng) -> tuple[Grid, Grid]:
    """Each dot of a colour gets neighbours of another."""
    dot, ring = parameter
    grid = _noise(height, width, rng, [dot], 0.1)
    near = np.zeros((height + 2, width + 2), bool)
    for down, right in product(range(3), repeat=2):
        near[down : down + height, right : right + width] |= grid == dot
    return grid, np.where(near[1:-1, 1:-1] & (grid == 0), ring, grid).astype(np.uint8)


DIRECTED = tuple(product(range(4), COLOURS))
FAMILIES: dict[str, Family] = {
    "recolour": Family(TWO_COLOURS, _recolour),
    "mirror": Family(tuple((turn,) for turn in range(len(TURNS))), _mirror),
    "move": Family(DIRECTED, _move),
    "fill": Family(TWO_COLOURS, _fill),
    "count": Family(TWO_COLOURS, _count),
    "copy": Family(TWO_COLOURS, _copy),
    "extend": Family(DIRECTED, _extend),
    "outline": Family(TWO_COLOURS, _outline),
}
