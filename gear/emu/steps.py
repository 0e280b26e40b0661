"""When this process took its steps, and what its operations had come to then."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Any
from weakref import WeakSet

from gear.emu.library import tallies

Tallies = Mapping[str, Mapping[str, Any]]  # of operations by name

_ends: list[float] = []
_told: list[Tallies] = []  # at the end of the second step, and of the last

FIRST = 2  # steps that do not count: frameworks prepare in them what all others use
_sharded: list[str] = []
_looked_at: WeakSet[Any] = WeakSet()


def step() -> None:
    """Ends a step of training: for optimisers that are not torch's, whose steps count by
    themselves once a group has been made."""
    _ends.append(time.monotonic())
    if len(_ends) >= FIRST:
        _told[1:] = [tallies()]


def spans() -> list[tuple[float, float]]:
    """When the steps but the first two began and ended, by time.monotonic()."""
    return list(pairwise(_ends[FIRST - 1 :]))


def durations() -> list[float]:
    """Seconds of these steps, in their order."""
    return [end - begin for begin, end in spans()]


def around() -> tuple[Tallies, Tallies]:
    """What operations had come to when the steps of `durations` began, and when they ended."""
    return (_told[0], _told[-1]) if _told else ({}, {})


def sharded() -> str:
    """What has split parameters that torch's optimisers step; empty: nothing that is known."""
    return _sharded[0] if _sharded else ""


@functools.cache
def count_optimisers() -> None:
    """Counts the steps of torch's optimisers from now on."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def taken(optimiser: Any, *_: Any) -> None:
        if optimiser not in _looked_at:
            _looked_at.add(optimiser)
            _sharded.extend(filter(None, [_split_by(optimiser)]))
        step()

    register_optimizer_step_post_hook(taken)


def _split_by(optimiser: Any) -> str:
    if type(optimiser).__name__ == "ZeroRedundancyOptimizer":
        return "ZeroRedundancyOptimizer"
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            if any(place.is_shard() for place in getattr(parameter, "placements", ())):
                return "DTensor"
            if getattr(parameter, "_is_flat_param", False):
                return "FullyShardedDataParallel"
            if hasattr(parameter, "ds_id"):
                return "DeepSpeed"
    return ""
