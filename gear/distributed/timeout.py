"""How long calls wait, and how often a wait looks whether it is to end."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from gear.errors import InvalidArgument

TIMEOUT_S = 300.0
SLICE_S = 0.1  # of a wait, between two looks whether it is to end
LEAST_S = 20e-6  # of the first waits between two questions whether something is done
LOOK_S = 0.5  # between two looks at what asks another process


@dataclass(frozen=True)
class Limit:
    """Of one call.

    Attributes:
        seconds: that it may take.
        end: when they are over, by time.monotonic.
    """

    seconds: float
    end: float

    @staticmethod
    def of(seconds: float) -> Limit:
        """From now on."""
        return Limit(seconds, time.monotonic() + seconds)

    def left(self) -> float:
        return max(self.end - time.monotonic(), 0.0)


def done_within(seconds: float, is_done: Callable[[], bool]) -> bool:
    """Whether it is done before so many seconds have passed.

    It asks less often the longer it waits: a rank that is far behind may need the core that this
    one would keep busy.
    """
    begin = time.monotonic()
    while not is_done():
        waited = time.monotonic() - begin
        if waited > seconds:
            return False
        time.sleep(max(LEAST_S, waited / 8))
    return True


def resolve_timeout(timeout_s: float | None) -> float:
    """The seconds that a wait may take: as given, else GEAR_TIMEOUT_S, else 300."""
    name, given = "timeout_s", str(timeout_s)
    if timeout_s is None:
        name, given = "GEAR_TIMEOUT_S", os.environ.get("GEAR_TIMEOUT_S") or str(TIMEOUT_S)
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InvalidArgument(
            f"[group] {name}={given}: seconds, a number above 0, are allowed; correct or unset it"
        )
    return value
