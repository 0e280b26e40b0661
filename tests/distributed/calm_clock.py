"""Time that a machine had for what runs on it, whatever else it did."""

from __future__ import annotations

import os
import time
from pathlib import Path


class CalmClock:
    """Starts when it is made."""

    def __init__(self) -> None:
        self._cpu, self._calm = self._now()

    def seconds(self) -> float:
        """CPU time of this process and of its children that have ended, or time in which nothing on
        this machine waited for a core or a disk, whichever is more."""
        cpu, calm = self._now()
        return max(cpu - self._cpu, calm - self._calm)

    @staticmethod
    def _now() -> tuple[float, float]:
        spent = os.times()
        cpu = spent.user + spent.system + spent.children_user + spent.children_system
        now = time.monotonic()
        try:
            stalled = sum(_stalled_s(resource) for resource in ("cpu", "io"))
        except OSError:  # a kernel that does not tell
            stalled = now
        return cpu, now - stalled


def _stalled_s(resource: str) -> float:
    """Seconds since the start of the machine in which something waited for it."""
    some = Path("/proc/pressure", resource).read_text().splitlines()[0]
    return int(some.rpartition("total=")[2]) / 1e6
