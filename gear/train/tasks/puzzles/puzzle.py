"""A puzzle, and the puzzles that are generated from families of rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gear.train.tasks.puzzles.families import FAMILIES, Grid, Parameter

Pair = tuple[Grid, Grid]
EVERY = 4  # of so many parameters of a family, the last is not seen in training
TRIES = 1000


@dataclass(frozen=True)
class Puzzle:
    """Pairs of input and output that show the rule, and one whose output is to be found."""

    name: str
    demonstrations: tuple[Pair, ...]
    query: Pair

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return (*self.demonstrations, self.query)

    @property
    def largest(self) -> int:
        """The longest side of all its grids."""
        return max(side for pair in self.pairs for grid in pair for side in grid.shape)


def parameters(family: str, *, unseen: bool) -> Sequence[Parameter]:
    """Those that training sees, or the others."""
    everything = FAMILIES[family].parameters
    return [p for at, p in enumerate(everything) if (at % EVERY == EVERY - 1) == unseen]


def generate(
    seed: Sequence[int],
    families: Sequence[str],
    *,
    unseen: bool | None,
    least: int,
    most: int,
    pairs: int,
) -> Puzzle:
    """A puzzle that follows from `seed` alone; its inputs differ, and each from its output.

    unseen: whether its parameter is one that training does not see; None: any.
    least, most: sides of the inputs.
    """
    rng = np.random.default_rng(list(seed))
    family = families[int(rng.integers(len(families)))]
    both = (False, True) if unseen is None else (unseen,)
    allowed = [p for each in both for p in parameters(family, unseen=each)]
    parameter = allowed[int(rng.integers(len(allowed)))]
    found: dict[bytes, Pair] = {}
    for _ in range(TRIES):
        height, width = (int(side) for side in rng.integers(least, most + 1, 2))
        given, wanted = FAMILIES[family].pair(parameter, height, width, rng)
        if not np.array_equal(given, wanted):
            found.setdefault(bytes(given.shape) + given.tobytes(), (given, wanted))
        if len(found) == pairs:
            break
    shown = list(found.values())
    return Puzzle(family, tuple(shown[:-1]), shown[-1])
