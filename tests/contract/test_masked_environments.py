"""What lies in the rows of environments that take no part, or changes behind a call's begin."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import gear

SCHEMA = gear.Schema(
    [
        gear.Column("obs", (2,), "float32"),
        gear.Column("x", (), "int64"),
        gear.Column("half", (), "float16"),
    ]
)
MASK = np.array([True, False, True])


def rows(**other: Any) -> dict[str, Any]:
    obs = np.zeros((3, 2), np.float32)
    return {"obs": obs, "x": np.arange(3), "half": np.zeros(3, np.float16), **other}


def spoilt(shape: tuple[int, ...], value: float) -> np.ndarray:
    """Of float64, zero but for the row that is not looked at."""
    array = np.zeros(shape)
    array[1] = value
    return array


@pytest.mark.parametrize("value", [1e300, -1e300, np.nan, np.inf])
@pytest.mark.parametrize("name", ["obs", "half", "priority"])
def test_no_value_of_a_masked_row_is_of_account(tier, name: str, value: float) -> None:
    array = spoilt((3, 2) if name == "obs" else (3,), value)
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        writer = buffer.writer(3, autoreset="same_step")
        writer.append(**rows(**{name: array}, mask=MASK))
        writer.append(**rows())
        writer.end_episode(mask=MASK)
        assert [(e.uid, e.end) for e in buffer.episodes()] == [(1, 2), (2, 2), (3, 1)]
        writer.end_episode()


def test_a_negative_priority_of_a_masked_row(tier) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        writer = buffer.writer(3, autoreset="same_step")
        writer.append(**rows(priority=np.array([2.0, -1.0, 3.0]), mask=MASK))
        ids = np.concatenate([e.ids for e in buffer.episodes()])
        assert buffer.priorities(ids).tolist() == [2.0, 3.0]
        with pytest.raises(gear.InvalidArgument, match="priority -1"):
            writer.append(**rows(priority=np.array([-1.0, 1.0, 3.0]), mask=MASK))
        writer.end_episode()


def test_flags_of_a_masked_row(tier) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        writer = buffer.writer(3, autoreset="same_step")
        writer.append(**rows())
        last = {"obs": spoilt((3, 2), 1e300)}
        writer.append(**rows(terminated=np.ones(3, bool), mask=MASK, final=last))
        assert writer.episodes == [None, 2, None]
        assert [e.state for e in buffer.episodes()] == ["terminated", "open", "terminated"]
        writer.end_episode()


def test_closing_values_of_environments_that_go_on(tier) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        writer = buffer.writer(3, autoreset="same_step")
        last = {"obs": spoilt((3, 2), 1e300)}
        with pytest.raises(gear.InvalidArgument, match="1e\\+300 in row 1"):
            writer.append(**rows(terminated=~MASK, final=last))
        assert len(buffer) == 0
        writer.append(**rows(terminated=MASK, final=last))
        assert writer.episodes == [None, 2, None]
        writer.end_episode(mask=MASK, final=last)
        writer.end_episode(mask=~MASK)


def test_no_environment_at_all(tier) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        writer = buffer.writer(3, autoreset="next_step")
        writer.append(**rows(priority=np.nan, mask=np.zeros(3, bool)))
        assert len(buffer) == 0


def test_flags_count_as_they_were_when_the_call_began(tier) -> None:
    """A call that waits for the rate limit while another thread fills the arrays anew."""
    schema = gear.Schema([gear.Column("x", (), "int64"), gear.Column("terminated", (), "bool")])
    limit = gear.RateLimit(1.0, 4, 4.0)
    with tier.buffer(schema, 64, page_steps=4, rate_limit=limit) as buffer:
        writer = buffer.writer(6, autoreset="same_step", timeout_s=60.0)
        x = np.arange(6)
        writer.append(x=x, terminated=np.zeros(6, bool))
        ends, mask = np.array([True, False] * 3), np.ones(6, bool)
        call = threading.Thread(
            target=writer.append, kwargs={"x": x, "terminated": ends, "mask": mask}
        )
        call.start()
        while len(buffer) < 8:
            time.sleep(0.001)
        ends[:] = ~ends
        mask[:] = False
        with buffer.loader(4, prefetch=0, framework="numpy") as loader:
            next(loader)
            call.join()
        assert [uid is None for uid in writer.episodes] == [True, False] * 3
        episodes = buffer.episodes()
        assert [(e.end, e.state) for e in episodes] == [(2, "terminated"), (2, "open")] * 3
        batch = buffer.collect(np.concatenate([e.ids for e in episodes]), framework="numpy")
        assert batch["terminated"].tolist() == [False, True, False, False] * 3
        writer.end_episode()
