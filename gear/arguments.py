"""Checks of arguments."""

from __future__ import annotations

import math
import operator
import os

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


def check_number(label: str, value: object) -> float:
    """`value` as a float, or InvalidArgument that names it."""
    try:
        if isinstance(value, (str, bytes)):  # float() reads these
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidArgument(f"{label} {value!r}: a number is allowed") from None


def check_between(label: str, value: object, *, most: float) -> float:
    """`value` as a float within [0, most], or InvalidArgument that names it."""
    number = check_number(label, value)
    if not 0 <= number <= most:
        raise InvalidArgument(f"{label} {value!r}: a number from 0 to {most:g} is allowed")
    return number


def check_text(label: str, value: object) -> str:
    """`value`, if it is a string, or InvalidArgument that names it."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{label} {value!r}: a string is allowed")
    return value


def check_path(label: str, value: object) -> str:
    """`value` as the text of a path, or InvalidArgument that names it."""
    try:
        path = os.fsdecode(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgument(f"{label} {value!r}: a string or a pathlib.Path is allowed") from None
    if not path or "\0" in path:
        raise InvalidArgument(f"{label} {path!r}: a path without a NUL, and not empty, is allowed")
    return path


def check_flag(label: str, value: object) -> bool:
    """`value`, if it is True or False, or InvalidArgument that names it."""
    if type(value).__name__ not in ("bool", "bool_"):  # of Python, of NumPy
        raise InvalidArgument(f"{label} {value!r}: True and False are allowed")
    return bool(value)


def check_timeout(area: str, timeout_s: object) -> float | None:
    """Seconds, 0 or more, or None; else InvalidArgument."""
    if timeout_s is None:
        return None
    try:
        seconds = check_number("", timeout_s)
    except InvalidArgument:
        seconds = math.nan
    if not (seconds >= 0 and math.isfinite(seconds)):
        raise InvalidArgument(f"{area} timeout_s {timeout_s!r}: seconds, 0 or more, or None")
    return seconds
