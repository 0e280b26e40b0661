"""Packages that may be absent: what a command cannot do without is asked for before it begins."""

from __future__ import annotations

from importlib.util import find_spec

import gear

EXTRA = "pip install 'gear-replay[train]'"
NO_PICTURE = f"none, as matplotlib is not installed: {EXTRA}"


def has(module: str) -> bool:
    """Whether it is installed; a folder of that name, where the command was started, is not it."""
    found = find_spec(module)
    return found is not None and found.origin is not None


def need(module: str, what: str) -> None:
    """InvalidArgument, before anything is done, if `what` needs a package that is not here."""
    if not has(module):
        raise gear.InvalidArgument(f"[train] {module} is not installed: {what}: {EXTRA}")
