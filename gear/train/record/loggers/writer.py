"""What every writer of metrics is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

Row = Mapping[str, float]


class MetricWriter(Protocol):
    """`write` may be called with any subset of the columns; `close` flushes."""

    def write(self, step: int, row: Row) -> None: ...

    def close(self) -> None: ...
