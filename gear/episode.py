"""What a buffer says of an episode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Episode:
    """What the buffer holds of one episode.

    Attributes:
        uid: creation number, unique in the buffer's life.
        begin, end: step numbers stored, ``[begin, end)``; steps before ``begin`` were evicted.
        state: ``"open"``, ``"terminated"`` or ``"truncated"``.
        priority: its own weight, or the mean of its steps' priorities.
        ids: int64 ``[end - begin]``, the steps' ids.
    """

    uid: int
    begin: int
    end: int
    state: str
    priority: float
    ids: npt.NDArray[np.int64]
