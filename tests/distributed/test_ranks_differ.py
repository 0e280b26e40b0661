"""What must be the same on all ranks and is not: an error on every one of them, and no hang."""

from __future__ import annotations

import contextlib
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
        assert "tier is 'host' on rank 0, 'shared' on rank 1: give the same on all ranks" in error


def test_each_rank_may_name_a_gpu_of_its_own() -> None:
    """Whether there are such GPUs is another question, which the tier answers."""

    def part(group: gear.Group) -> None:
        gear.ReplayBuffer(SCHEMA, 64, group=group, tier=("device:0", "device:1")[group.rank])

    for error in errors_of(part):
        assert "give the same on all ranks" not in error


def test_different_time_outs_are_refused_on_all_ranks() -> None:
    def part(group: gear.Group) -> None:
        filled(group).loader(4, timeout_s=(1.0, 5.0)[group.rank])

    for error in errors_of(part):
        assert error.startswith("InvalidArgument")
        assert "ReplayBuffer.loader: timeout_s is 1.0 on rank 0, 5.0 on rank 1" in error


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        ("tier", {"tier": "shared"}, {"tier": "host"}),
        ("name", {"tier": "shared", "name": "ranks-differ"}, {"tier": "shared"}),
        ("name", {"tier": "shared", "name": "ranks-a"}, {"tier": "shared", "name": "ranks-b"}),
        ("evict", {"evict": "lifo"}, {}),
        ("max_times_sampled", {"max_times_sampled": 3}, {}),
        ("rate_limit", {"rate_limit": gear.RateLimit(4.0)}, {}),
        ("page_steps", {"page_steps": 8}, {}),
    ],
)
@pytest.mark.parametrize("differs", [0, 1])
def test_every_argument_of_a_buffer_is_compared(
    key: str, one: dict[str, Any], other: dict[str, Any], differs: int
) -> None:
    """Before anything is made; the group is good for more."""

    def part(group: gear.Group) -> None:
        try:
            gear.ReplayBuffer(SCHEMA, 64, group=group, **(one if group.rank == differs else other))
        finally:
            assert group.exchange(group.rank) == [0, 1]

    first, second = errors_of(part)
    assert first == second
    assert first.startswith(f"InvalidArgument: [buffer] ReplayBuffer: {key} is ")
    assert first.endswith(" on rank 1: give the same on all ranks")


def test_ones_and_floats_are_no_difference() -> None:
    def part(group: gear.Group) -> None:
        sampler = gear.Weighted(alpha=(1, 1.0)[group.rank], beta=(1.0, 1)[group.rank])
        filled(group).loader(4, sampler=sampler).close()

    assert errors_of(part) == ["nothing"] * 2


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_beta_that_differs_is_refused_until_it_is_the_same(prefetch: int) -> None:
    """Batches in flight, drawn before, come first; nothing is lost."""
    refused: list[list[str]] = [[], []]

    def part(group: gear.Group) -> None:
        loader = filled(group).loader(4, sampler=gear.Weighted(beta=0.4), prefetch=prefetch)
        next(loader)
        loader.beta = (0.0, 0.5)[group.rank]
        for _ in range(prefetch + 2):
            try:
                next(loader)
            except gear.InvalidArgument as error:
                refused[group.rank].append(str(error))
        loader.beta = 0.7
        for _ in range(prefetch + 2):
            with contextlib.suppress(gear.InvalidArgument):  # of draws ahead, before
                next(loader)
        assert len(next(loader).ids) == 4
        loader.close()

    assert errors_of(part) == ["nothing"] * 2
    assert refused[0] == refused[1]
    words = "[sampler] beta of the loader on rank 1 is 0.5, on rank 0 0, and no batch is drawn"
    assert refused[0]
    assert all(one.startswith(words) for one in refused[0])
