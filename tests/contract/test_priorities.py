"""Priorities of steps and episodes: defaults, updates, means, and the eviction they steer."""

from __future__ import annotations

import numpy as np
import pytest

import gear

SCHEMA = gear.Schema([gear.Column("x", (), "int32")])


def write(buffer: gear.ReplayBuffer, priorities: list[float] | None, steps: int = 4, **end) -> int:
    """An ended episode; its uid."""
    writer = buffer.writer()
    writer.extend(x=np.arange(steps, dtype=np.int32), priority=priorities)
    uid = writer.episode
    writer.end_episode(**end)
    return uid


def by_uid(buffer: gear.ReplayBuffer) -> dict[int, float]:
    return {episode.uid: episode.priority for episode in buffer.episodes()}


def test_none_stands_for_the_largest_seen_so_far(tier) -> None:
    with tier.buffer(SCHEMA, 64) as buffer:
        assert buffer.stats()["max_priority"] == 1.0
        first = write(buffer, None)
        second = write(buffer, [0.5, 5.0, 2.0, 0.5])
        third = write(buffer, None)
        assert by_uid(buffer) == {first: 1.0, second: 2.0, third: 5.0}
        buffer.update(buffer.episodes()[0].ids[:1], [80.0])
        fourth = write(buffer, None)
        assert by_uid(buffer)[fourth] == buffer.stats()["max_priority"] == 80.0


def test_an_episode_has_the_mean_of_its_stored_steps_or_its_own(tier) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        mean = write(buffer, [1.0, 2.0, 3.0, 6.0])
        own = write(buffer, [1.0, 2.0, 3.0, 6.0], weight=0.25)
        assert by_uid(buffer) == {mean: 3.0, own: 0.25}
        for episode in buffer.episodes():
            buffer.update(episode.ids[:2], [3.0, 4.0])
        assert by_uid(buffer) == {mean: 4.0, own: 0.25}
        heads = [int(e.ids[0]) | 1 << 62 for e in buffer.episodes()]
        assert buffer.update(heads, [7.0, 8.0]) == 2
        assert by_uid(buffer) == {mean: 7.0, own: 8.0}


def test_the_mean_leaves_evicted_steps_out(tier) -> None:
    with tier.buffer(SCHEMA, 8, page_steps=4) as buffer:
        uid = write(buffer, [9.0, 9.0, 9.0, 9.0, 1.0, 2.0, 3.0, 2.0], steps=8)
        assert by_uid(buffer) == {uid: 5.5}
        buffer.writer().append(x=0)
        assert by_uid(buffer)[uid] == 2.0


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e-9, 60000.5, 65536.5, 1e6, 1e30])
def test_extreme_priorities_are_kept_as_they_are(tier, value: float) -> None:
    """Means are of fixed point: 2^-24 fine, 2^16 at most. A step's own priority is not."""
    with tier.buffer(SCHEMA, 64) as buffer:
        uid = write(buffer, [value] * 4)
        assert by_uid(buffer)[uid] == pytest.approx(min(value, 65536.0), abs=2**-25)
        ids = buffer.episodes()[0].ids
        assert buffer.priorities(ids).tolist() == [np.float32(value)] * 4


def test_lowest_priority_evicts_the_lowest_the_older_among_equals(tier) -> None:
    with tier.buffer(SCHEMA, 24, page_steps=4, evict="lowest_priority") as buffer:
        uids = [
            write(buffer, [2.0] * 4),
            write(buffer, [1.0] * 4),
            write(buffer, [0.0] * 4),
            write(buffer, [5.0] * 4, weight=0.0),
            write(buffer, [3.0] * 4),
            write(buffer, [1.0] * 4),
        ]
        order = []
        for _ in range(3):
            before = set(by_uid(buffer))
            write(buffer, [9.0] * 4)
            order += before - set(by_uid(buffer))
        assert order == [uids[2], uids[3], uids[1]]
        ids = {e.uid: e.ids for e in buffer.episodes()}
        buffer.update(ids[uids[4]], [0.125] * 4)
        buffer.update([int(ids[uids[0]][0]) | 1 << 62], [0.25])
        for expected in (uids[4], uids[0], uids[5]):
            before = set(by_uid(buffer))
            write(buffer, [9.0] * 4)
            assert before - set(by_uid(buffer)) == {expected}


def test_large_weights_saturate_and_are_counted(tier) -> None:
    with tier.buffer(SCHEMA, 64) as buffer:
        write(buffer, [1e30, 1.0, 1e30, 1.0])
        with buffer.loader(
            1000, sampler=gear.Weighted(alpha=1.0), framework="numpy", prefetch=1
        ) as loader:
            assert set(next(loader)["x"].tolist()) == {0, 2}
        assert buffer.stats()["saturated_weights"] >= 2


def test_an_episode_whose_weight_is_cut_is_counted_once_a_law(tier) -> None:
    def saturated() -> int:
        return buffer.stats()["saturated_weights"]

    with tier.buffer(SCHEMA, 16, page_steps=4) as buffer:
        laws = [gear.Weighted(alpha=alpha, unit="episode") for alpha in (1.0, 0.9)]
        with buffer.loader(1, sampler=laws[0], framework="numpy"):
            write(buffer, [1.0] * 16, 16, weight=1e30)
            assert saturated() == 1
            write(buffer, [1.0] * 12, 12)  # takes three of its four pages
            assert len(buffer.episodes()[0].ids) == 4
            assert saturated() == 1
            with buffer.loader(1, sampler=laws[1], framework="numpy"):
                assert saturated() == 2
                episode = int(buffer.episodes()[0].ids[0]) | 1 << 62
                buffer.update([episode], [2e30])
                assert saturated() == 4
