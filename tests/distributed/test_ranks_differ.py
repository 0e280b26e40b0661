"""What must be the same on all ranks and is not: an error on every one of them, and no hang."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gear

SCHEMA = gear.Schema([gear.Column("x", (), "float32")])


def errors_of(part: Callable[[gear.Group], None]) -> list[str]:
    """What `part` raises on each of two ranks, threads of this process."""

    def run(group: gear.Group) -> str:
        try:
            part(group)
        except (gear.GearError, TimeoutError) as error:
            return f"{type(error).__name__}: {error}"
        return "nothing"

    groups = gear.Group.loopback(2, timeout_s=20)
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(run, groups))


def filled(group: gear.Group, **options: Any) -> gear.ReplayBuffer:
    buffer = gear.ReplayBuffer(SCHEMA, 64, group=group, **options)
    with buffer.writer() as writer:
        writer.extend(x=np.arange(5, dtype=np.float32))
        writer.end_episode(terminated=True)
    return buffer


def test_different_tiers_are_refused_on_all_ranks() -> None:
    def part(group: gear.Group) -> None:
        gear.ReplayBuffer(SCHEMA, 64, group=group, tier=("host", "shared")[group.rank])

    for error in errors_of(part):
        assert error.startswith("InvalidArgument")
        assert "'shared' on rank 1" in error


def test_different_time_outs_are_refused_on_all_ranks() -> None:
    def part(group: gear.Group) -> None:
        filled(group).loader(4, timeout_s=(1.0, 5.0)[group.rank])

    for error in errors_of(part):
        assert error.startswith("InvalidArgument")
        assert "timeout_s of the loader on rank 1 is 5, on rank 0 1" in error


@pytest.mark.parametrize("limited", [0, 1])
def test_a_rate_limit_on_one_rank_holds_both(limited: int) -> None:
    def part(group: gear.Group) -> None:
        limit = gear.RateLimit(0, min_steps=10) if group.rank == limited else None
        next(filled(group, rate_limit=limit).loader(4, timeout_s=0.3))

    assert all(error.startswith("TimeoutError") for error in errors_of(part))
