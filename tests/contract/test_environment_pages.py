"""What N environments get of the pages, and what is left when there are not enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gear

SCHEMA = gear.Schema([gear.Column("x", (), "int64")])
EVICT = ["fifo", "lifo", "lowest_priority"]


def found(buffer: gear.ReplayBuffer) -> list[tuple[int, int, int, str]]:
    return [(e.uid, e.begin, e.end, e.state) for e in buffer.episodes()]


@pytest.mark.parametrize("evict", EVICT)
def test_a_closing_step_takes_what_others_can_spare(tier, evict: str) -> None:
    """A full page of the one, three of the other."""
    with tier.buffer(SCHEMA, 16, page_steps=4, evict=evict) as buffer:
        ending, grown = buffer.writer(), buffer.writer()
        ending.extend(x=np.arange(4))
        grown.extend(x=np.arange(12))
        ending.end_episode(terminated=True, final={"x": 4})
        assert found(buffer) == [(1, 0, 4, "terminated"), (2, 4, 12, "open")]
        grown.end_episode()


@pytest.mark.parametrize("evict", EVICT)
def test_episodes_that_end_in_one_call_leave_as_many_as_one_after_the_other(
    tier, evict: str
) -> None:
    """Each needs a page for its closing step, and there is one more than environments."""
    size: dict[str, Any] = {"page_steps": 4, "evict": evict}
    with tier.buffer(SCHEMA, 36, **size) as one, tier.buffer(SCHEMA, 36, **size) as many:
        writer = one.writer(8, autoreset="same_step")
        writers = [many.writer() for _ in range(8)]
        for step in range(4):
            last = np.full(8, step == 3)
            writer.append(x=np.arange(8), terminated=last, final={"x": np.arange(8)})
            for i, each in enumerate(writers):
                each.append(x=i)
        for i, each in enumerate(writers):
            each.end_episode(terminated=True, final={"x": i})
        assert found(one) == found(many)
        assert len(one) >= 16


def test_environments_without_a_page_leave_nothing(tier) -> None:
    with tier.buffer(SCHEMA, 16, page_steps=4) as buffer:
        first, second = (buffer.writer(3, autoreset="disabled") for _ in range(2))
        first.append(x=np.arange(3))
        before = found(buffer)
        message = (
            "3 environments open an episode each, and of 4 pages of 4 steps only 1 can be had: 3 "
            "are the last ones of open episodes.*nothing of this call is stored.*capacity to 28"
        )
        for _ in range(2):
            with pytest.raises(gear.OutOfMemory, match=message):
                second.append(x=np.arange(3))
        assert found(buffer) == before
        assert second.episodes == [None] * 3
        first.end_episode()
        second.append(x=np.arange(3))
        assert [state for *_, state in found(buffer)][-3:] == ["open"] * 3
        second.end_episode()


def test_a_refused_call_costs_no_stored_step(tier) -> None:
    with tier.buffer(SCHEMA, 20, page_steps=4) as buffer:
        grown, second = buffer.writer(), buffer.writer(4, autoreset="disabled")
        other = buffer.writer()
        other.append(x=0)
        grown.extend(x=np.arange(16))
        with pytest.raises(gear.OutOfMemory):
            second.append(x=np.arange(4))
        assert len(buffer) == 17
        second.append(x=np.arange(4), mask=np.array([True, True, True, False]))
        assert len(buffer) == 1 + 4 + 3
        for writer in (grown, other, second):
            writer.end_episode()
