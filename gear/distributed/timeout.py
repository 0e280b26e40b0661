"""How long calls wait, and how often a wait looks whether it is to end."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass

from gear.errors import InvalidArgument

TIMEOUT_S = 300.0
SLICE_S = 0.1  # of a wait, between two looks whether it is to end
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
