"""update() and collect(): ids and priorities that cannot be are refused, and nothing is applied."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from filled import ROWS, SCHEMA, Filled

import gear

NAN, INF = float("nan"), float("inf")

UPDATES: list[tuple[Callable[[np.ndarray], tuple[Any, Any]], str]] = [
    (lambda ids: (ids, [1.0, NAN, *[1.0] * 9]), r"priority nan at position 1.*finite"),
    (lambda ids: (ids, [1.0, 1.0, -2.0, *[1.0] * 8]), r"priority -2 at position 2"),
    (lambda ids: (ids, np.full(11, INF)), r"priority inf at position 0"),
    (lambda ids: (ids, np.full(11, 1e300)), r"priority inf at position 0"),
    (lambda ids: (ids, [1.0]), r"(11.*1|1.*11)"),
    (lambda ids: (ids.astype(np.float64), np.ones(11)), r"ids.*float64.*int64"),
    (lambda ids: (ids.astype(np.int32), np.ones(11)), r"ids.*int32.*int64"),
    (lambda ids: (ids.astype(np.uint64), np.ones(11)), r"ids.*uint64.*int64"),
    (lambda ids: (np.zeros(0, np.int32), np.ones(0)), r"ids.*int32.*int64"),
    (lambda ids: ([[1], [2, 3]], np.ones(2)), r"list is no array"),
    (lambda ids: (ids.reshape(1, 11), np.ones((1, 11))), r"dimension|shape"),
    (lambda ids: (np.append(ids, -1), np.ones(12)), r"id -1 at position 11.*not of this buffer"),
    (lambda ids: (ids | 1 << 50, np.ones(11)), r"id \d+ at position 0.*not of this buffer"),
    (lambda ids: (ids | 1 << 31, np.ones(11)), r"id \d+ at position 0.*not of this buffer"),
]


@pytest.mark.parametrize(("arguments", "message"), UPDATES, ids=range(len(UPDATES)))
def test_a_refused_update_changes_nothing(filled: Filled, arguments, message: str) -> None:
    with pytest.raises(gear.InvalidArgument, match=message):
        filled.buffer.update(*arguments(filled.ids))
    filled.check_nothing_changed()


def test_update_takes_lists_and_empty_lists(filled: Filled) -> None:
    assert filled.buffer.update([], []) == 0
    assert filled.buffer.update(filled.ids.tolist(), [2.0] * 11) == 11
    assert {e.priority for e in filled.buffer.episodes()} == {2.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ids: ids | 1 << 32, r"id \d+.*evicted"),
        (lambda ids: ids + 30, r"id \d+.*evicted"),
        (lambda ids: ids | 1 << 55, r"id \d+ is not of this buffer"),
        (lambda ids: -ids - 1, r"id -\d+ is not of this buffer"),
        (lambda ids: ids[:1] + (1 << 62) + 1, r"id \d+"),
        (lambda ids: ids.reshape(1, -1), r"dimension|shape"),
        (lambda ids: ids.astype(np.float32), r"ids.*float32.*int64"),
        (lambda ids: ids.astype(np.int32), r"ids.*int32.*int64"),
    ],
)
def test_collect_refuses_ids_that_name_no_stored_step(filled: Filled, change, message: str) -> None:
    with pytest.raises(gear.InvalidArgument, match=message):
        filled.buffer.collect(change(filled.ids))
    filled.check_nothing_changed()


def test_stale_ids(tier) -> None:
    with tier.buffer(SCHEMA, 16, page_steps=4) as buffer, buffer.writer() as writer:
        writer.extend(**ROWS)
        stale = buffer.episodes()[0].ids
        for _ in range(5):
            writer.extend(**ROWS)
        with pytest.raises(gear.InvalidArgument, match=rf"id {stale[0]}.*evicted"):
            buffer.collect(stale)
        assert buffer.update(stale, np.full(4, 9.0)) == 0
        assert buffer.stats()["stale_updates"] == 4
        assert {e.priority for e in buffer.episodes()} == {1.0}
        assert buffer.stats()["max_priority"] == 1.0


def test_episodes_are_told_without_their_ids() -> None:
    """Ids of 100,000 steps take 800 kB; they are made when they are asked for."""
    with gear.ReplayBuffer(gear.Schema([gear.Column("x", (), "int32")]), 100_000) as buffer:
        with buffer.writer() as writer:
            writer.extend(x=np.arange(90_000, dtype=np.int32))
            writer.end_episode(terminated=True)
        tracemalloc.start()
        try:
            (episode,) = buffer.episodes()
            assert tracemalloc.get_traced_memory()[1] < 100_000
        finally:
            tracemalloc.stop()
        assert episode.ids is episode.ids
        found = buffer.collect(episode.ids, framework="numpy")
        np.testing.assert_array_equal(found["x"], np.arange(90_000))
        np.testing.assert_array_equal(found.ids, episode.ids)
