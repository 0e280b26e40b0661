"""The description of one stored episode."""

from __future__ import annotations

from dataclasses import dataclass

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
        ids: int64 ``[end - begin]``, the ids of the steps.
    """

    uid: int
    begin: int
    end: int
    state: str
    priority: float
    ids: npt.NDArray[np.int64]
