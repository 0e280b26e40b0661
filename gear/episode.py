"""The description of one stored episode."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Episode:
    """The stored part of one episode.

    Attributes:
        uid: creation number, unique in the buffer's life.
        begin, end: numbers of the stored steps, ``[begin, end)``; those before ``begin`` were
            evicted.
        state: ``"open"``, ``"terminated"`` or ``"truncated"``.
        priority: the weight given to the episode, or the mean of its steps' priorities.
        ids: int64 ``[end - begin]``, the ids of the steps; made when they are first asked for.
    """

    uid: int
    begin: int
    end: int
    state: str
    priority: float
    _runs: npt.NDArray[np.int64] = field(repr=False, compare=False)
    """Of ids that follow each other: ``[N, 2]``, the first one, and how many."""

    @cached_property
    def ids(self) -> npt.NDArray[np.int64]:
        first, steps = self._runs.T
        before = np.cumsum(steps) - steps
        return np.repeat(first - before, steps) + np.arange(steps.sum())
