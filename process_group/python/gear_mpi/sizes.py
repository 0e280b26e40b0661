"""Numbers of bytes, as operators write them."""

from __future__ import annotations

import re

from gear_mpi.errors import InvalidArgument

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def bytes_of(text: str) -> int:
    """The number of bytes that ``4M``, ``256K`` or ``100`` say."""
    match = re.fullmatch(r"(\d{1,12})([KMG]?)", text.strip().upper())
    if match is None:
        raise InvalidArgument(
            f"[mpi] {text!r} is no number of bytes: write one as 4M, 256K or 100000"
        )
    return int(match[1]) * UNITS[match[2]]


def bytes_text(number: int) -> str:
    """The shortest text that `bytes_of` takes for `number`."""
    for unit, factor in reversed(UNITS.items()):
        if number % factor == 0 and (number or not unit):
            return f"{number // factor}{unit}"
    raise AssertionError(number)
