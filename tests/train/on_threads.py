"""Ranks that are threads of this process, for what they tell each other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import gear


def on_threads(size: int, work: Callable[[Any], Any]) -> list[Any]:
    """What `work` returns on each of `size` ranks; it gets what Ranks has for messages."""
    ranks = [
        SimpleNamespace(
            rank=group.rank,
            size=size,
            exchange=group.exchange,
            together=lambda step, what: step(),
        )
        for group in gear.Group.loopback(size)
    ]
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(work, ranks))
