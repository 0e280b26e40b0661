"""One row of what `gear check` found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One row; `status` is a key of COLOURS. `cost` says what the absence of a thing means."""

    area: str
    name: str
    status: str
    detail: str
    cost: str = ""


COLOURS = {
    "built": "green",
    "found": "green",
    "missing": "yellow",
    "broken": "red",  # it is here and does not work
    "set": "cyan",
    "default": "dim",
}
