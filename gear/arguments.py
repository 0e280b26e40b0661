"""Checks of numbers that callers give."""

from __future__ import annotations

import math
import operator

from gear.errors import InvalidArgument


def check_count(label: str, value: object, *, least: int = 1, most: int = (1 << 63) - 1) -> int:
    """`value` as an int within [least, most], or InvalidArgument that names it."""
    try:
        count = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgument(f"{label} {value!r}: an integer is allowed") from None
    if not least <= count <= most:
        bound = f"{least} or more" if count < least else f"{most} or less"
        raise InvalidArgument(f"{label} {count}: {bound} is allowed")
    return count


def check_timeout(area: str, timeout_s: float | None) -> None:
    """Refuses waits that are negative or no number."""
    if timeout_s is not None and not (timeout_s >= 0 and math.isfinite(timeout_s)):
        raise InvalidArgument(f"{area} timeout_s {timeout_s!r}: seconds, 0 or more, or None")
