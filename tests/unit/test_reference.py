"""The reference itself, on examples small enough to work out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from reference import Buffer, Column


def fill(buffer: Buffer, steps: int, first: int = 1, priority: float | None = None):
    """An open episode whose rows are first, first + 1, ..."""
    episode = buffer.open_episode()
    for value in range(first, first + steps):
        buffer.append(episode, {"x": np.int32(value)}, priority)
    return episode


def make(capacity: int, page_steps: int, evict: str = "fifo") -> Buffer:
    return Buffer([Column("x", (), "int32")], capacity, page_steps, evict)


def test_windows_pad_at_both_ends() -> None:
    buffer = make(8, 4)
    episode = fill(buffer, 3)
    buffer.end_episode(episode, terminated=True, final={"x": np.int32(9)})
    expected = {"both": [0, 1, 2, 3, 9, 0], "head": [0, 0, 1, 2, 3, 9], "tail": [1, 2, 3, 9, 0, 0]}
    for pad, rows in expected.items():
        data, mask = buffer.window((episode, 1), "x", -2, 4, pad)
        assert data.tolist() == rows
        assert (data > 0).tolist() == mask.tolist()
    packed = buffer.deliver([(episode, 0), (episode, 2)], "x", 0, 3, "both", packed=True)
    assert packed.data.tolist() == [1, 2, 3, 3, 9]
    assert packed.cu_seqlens is not None
    assert packed.cu_seqlens.tolist() == [0, 3, 5]


def test_closing_step_takes_a_row_but_is_no_step() -> None:
    buffer = make(8, 4)
    episode = fill(buffer, 4)
    buffer.end_episode(episode, terminated=False, final={"x": np.int32(9)})
    assert len(episode.pages) == 2
    assert len(buffer) == 4


@pytest.mark.parametrize(
    ("evict", "kept"),
    [("fifo", [2, 3, 4]), ("lifo", [1, 2, 4]), ("lowest_priority", [1, 3, 4])],
)
def test_eviction_takes_the_oldest_page_of_the_victim(evict: str, kept: list[int]) -> None:
    buffer = make(12, 4, evict)
    for priority in (2.0, 1.0, 3.0):
        buffer.end_episode(fill(buffer, 3, priority=priority), terminated=True)
    fill(buffer, 1)
    assert [e.uid for e in buffer.episodes] == kept


def test_an_open_episode_longer_than_the_buffer_keeps_its_end() -> None:
    for evict in ("fifo", "lifo", "lowest_priority"):
        buffer = make(8, 4, evict)
        episode = fill(buffer, 21)
        assert (episode.begin, episode.end) == (16, 21)
        assert len(buffer) == 5


def test_pages_that_are_being_written_cannot_go() -> None:
    buffer = make(8, 4)
    fill(buffer, 1)
    fill(buffer, 1)
    with pytest.raises(MemoryError):
        fill(buffer, 1)


def test_open_episodes_offer_steps_with_complete_windows_only() -> None:
    buffer = make(16, 4)
    episode = fill(buffer, 6)
    buffer.require_lookahead([(-3, 1), (0, 3)])
    assert [t for _, t in buffer.anchors()] == [0, 1, 2, 3]
    assert buffer.anchors("episode") == []
    buffer.end_episode(episode, terminated=False)
    assert [t for _, t in buffer.anchors()] == [0, 1, 2, 3, 4, 5]
    assert buffer.anchors("episode") == [(episode, 0)]
