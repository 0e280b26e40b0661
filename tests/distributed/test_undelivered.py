"""Over a group, what was drawn ahead and not delivered is given back to the ranks that hold it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numbered
import numpy as np
import pytest

import gear
from distributed.test_other_ranks import on_ranks

LENGTHS = {0: [13, 4, 8], 1: [2, 21, 5, 7]}  # 60 steps
SAMPLERS = [gear.Fifo(), gear.Lifo(), gear.TopK()]


def fill(buffer: gear.ReplayBuffer, rank: int) -> None:
    numbered.write(buffer, 1000 * rank + 1, LENGTHS[rank], np.random.default_rng(rank))


def numbers_of(batch: gear.Batch) -> list[int]:
    return [int(number) for number in batch["number"].reshape(-1)]


@pytest.mark.parametrize("locality", ["first", "off"])
@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_queue_over_ranks_loses_nothing(
    sampler: gear.Sampler, prefetch: int, locality: str
) -> None:
    def deliver(group: gear.Group) -> Any:
        delivered: list[int] = []
        with gear.ReplayBuffer(
            numbered.SCHEMA, 128, page_steps=4, max_times_sampled=1, group=group
        ) as buffer:
            fill(buffer, group.rank)
            group.barrier()
            for _ in range(10):
                with buffer.loader(
                    3,
                    sampler=sampler,
                    outputs={"number": gear.Step()},
                    framework="numpy",
                    prefetch=prefetch,
                    locality=locality,
                ) as loader:
                    delivered += numbers_of(next(loader))
            group.barrier()
            return delivered, buffer.stats()["steps_sampled"], len(buffer)

    found = on_ranks(2, deliver)
    every = [
        number
        for rank, lengths in LENGTHS.items()
        for number in range(1000 * rank + 1, 1000 * rank + 1 + sum(lengths))
    ]
    assert sorted(found[0][0] + found[1][0]) == every
    assert [sampled for _, sampled, _ in found] == [sum(LENGTHS[rank]) for rank in (0, 1)]
    assert [left for _, _, left in found] == [0, 0]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_resumed_run_over_ranks_is_the_whole_one(tmp_path: Path, sampler: gear.Sampler) -> None:
    states: dict[int, Any] = {}

    def make(buffer: gear.ReplayBuffer) -> gear.Loader:
        return buffer.loader(
            2, sampler=sampler, outputs={"number": gear.Step()}, framework="numpy", prefetch=3
        )

    def rest(buffer: gear.ReplayBuffer, loader: gear.Loader) -> Any:
        found = [numbers_of(next(loader)) for _ in range(11)]
        buffer.group.barrier()
        return found, buffer.stats()["steps_sampled"], len(buffer)

    def whole(group: gear.Group) -> Any:
        buffer = gear.ReplayBuffer(
            numbered.SCHEMA, 128, page_steps=4, max_times_sampled=1, group=group
        )
        fill(buffer, group.rank)
        group.barrier()
        loader = make(buffer)
        for _ in range(4):
            next(loader)
        buffer.save(tmp_path / "replay")
        states[group.rank] = loader.state_dict()
        return rest(buffer, loader)

    def resumed(group: gear.Group) -> Any:
        buffer = gear.ReplayBuffer.load(tmp_path / "replay", group=group)
        loader = make(buffer)
        loader.load_state_dict(states[group.rank])
        return rest(buffer, loader)

    expected = on_ranks(2, whole)
    assert on_ranks(2, resumed) == expected

    def by_more(group: gear.Group) -> Any:
        """Another number of ranks draws what was in flight anew; none of it is lost."""
        with gear.ReplayBuffer.load(tmp_path / "replay", group=group) as buffer:
            found: list[int] = []
            with buffer.loader(
                1, sampler=sampler, outputs={"number": gear.Step()}, framework="numpy", prefetch=2
            ) as loader:
                loader.load_state_dict(states[0])
                for _ in range(11):
                    found += numbers_of(next(loader))
            return found

    found = on_ranks(4, by_more)
    assert sorted(n for part in found for n in part) == sorted(
        n for batches, _, _ in expected for batch in batches for n in batch
    )
