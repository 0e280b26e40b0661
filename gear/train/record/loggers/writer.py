"""What every writer of metrics is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

Row = Mapping[str, float]
Kept = Sequence[tuple[int, Mapping[str, str]]]  # step and row of what stays when a run goes on


class MetricWriter(Protocol):
    """`write` may be called with any subset of the columns; `close` flushes.

    A run that goes on from a checkpoint writes again what it had written after it: a writer begins
    with what it keeps, so that each row is there once.
    """

    def write(self, step: int, row: Row) -> None: ...

    def close(self) -> None: ...
