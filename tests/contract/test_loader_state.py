"""A loader's state: what is refused is named, and leaves the loader as it was."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest

import gear

COLUMNS = [gear.Column("x", (), "float32")]
KIND: dict[str, Any] = {"framework": "numpy", "prefetch": 2, "seed": 5}


def fill(buffer: gear.ReplayBuffer, first: int = 0) -> None:
    with buffer.writer() as writer:
        x = np.arange(first, first + 40, dtype=buffer.schema["x"].dtype)
        writer.extend(x=x, priority=1.0 + np.arange(40, dtype=np.float32))


def change_pending(**change: Any) -> Any:
    def changed(state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "pending": [{**state["pending"][0], **change}]}

    return changed


def change(**fields: Any) -> Any:
    return lambda state: {**state, **fields}


def without(key: str) -> Any:
    return lambda state: {k: v for k, v in state.items() if k != key}


TORN = {
    "draws above 64 bits": (change(draws=2**70), r"draws 1180591620717411303424: .* or less"),
    "negative size": (change(size=-5), "size -5: 0 or more is allowed"),
    "epoch of text": (change(epoch="3"), "epoch '3': an integer is allowed"),
    "beta of text": (change(beta="x"), "beta 'x': a number from 0 to 1"),
    "beta that is none": (change(beta=math.nan), "beta nan: a number from 0 to 1"),
    "negative beta": (change(beta=-1.0), "beta -1.0: a number from 0 to 1"),
    "no draws": (without("draws"), "lacks 'draws': give what state_dict"),
    "no schema": (without("schema"), "schema None"),
    "no buffer": (without("buffer"), "lacks 'buffer'"),
    "ranks": (change(ranks=0), "ranks 0: 1 or more"),
    "seed": (change(seed=1 << 64), "seed 18446744073709551616: .* or less"),
    "another seed": (change(seed=6), "seed 6: this loader takes 5"),
    "sampler": (change(sampler="Weighted()"), "sampler 'Weighted"),
    "outputs": (change(outputs=[]), r"outputs \[\]"),
    "older": (change(version=1), "version 1: this GEAR reads version 2"),
    "newer": (change(version=3), "version 3: this GEAR reads version 2"),
    "no dict": (lambda state: [1], r"\[1\]: give what state_dict"),
    "no list": (change(pending=7), "pending 7: a list of batches"),
    "no batch": (change(pending=[3]), "in batch 0: 3: give"),
    "items": (change_pending(items=2**64), "in batch 0: items 18446744073709551616"),
    "too many items": (change_pending(items=9), "9 items"),
    "rows": (change_pending(rows=[-1]), "in batch 0: rows -1: 0 or more"),
    "rows of text": (change_pending(rows="1"), "in batch 0: rows '1': a list"),
    "too many rows": (change_pending(rows=[1 << 40]), "state holds a batch"),
    "before": (change_pending(before=(1, 2)), r"before \[1, 2\]: three counts"),
    "epoch_end": (change_pending(epoch_end=1), "epoch_end 1: True and False"),
    "data": (change_pending(data="abc"), "data 'abc': bytes are allowed"),
    "short data": (change_pending(data=b"abc"), "a batch of 3 bytes"),
    "uses": (change_pending(uses=b"abc"), "uses b'abc': a list of counts"),
    "more uses than draws": (change_pending(uses=[1] * 9, draws=8), "9 uses of 8 draws"),
    "negative use": (change_pending(uses=[-1]), "uses -1: 0 or more"),
}


@pytest.mark.parametrize("case", TORN)
def test_a_torn_state_is_refused_and_nothing_changes(tier, case: str) -> None:
    """Neither what is in flight, nor the place in the sequence of draws."""
    tear, message = TORN[case]
    with tier.buffer(gear.Schema(COLUMNS), 64, page_steps=4) as buffer:
        fill(buffer)
        first = buffer.loader(8, sampler=gear.Weighted(), **KIND)
        second = buffer.loader(8, sampler=gear.Weighted(), **KIND)
        for _ in range(3):
            next(first), next(second)
        state = copy.deepcopy(first.state_dict())
        next(first), next(second)
        before = copy.deepcopy(second.state_dict())
        with pytest.raises(gear.InvalidArgument, match=message) as refused:
            second.load_state_dict(tear(state))
        assert "loader" in str(refused.value)
        assert "state" in str(refused.value)
        assert second.state_dict() == before
        for _ in range(4):
            assert np.array_equal(next(second).ids, next(first).ids)


def test_a_place_beyond_its_epoch_is_refused(tier) -> None:
    with tier.buffer(gear.Schema(COLUMNS), 64, page_steps=4) as buffer:
        fill(buffer)
        first, second = (buffer.loader(8, sampler=gear.Sequential(), **KIND) for _ in range(2))
        next(first), next(second)
        state = first.state_dict()
        with pytest.raises(gear.InvalidArgument, match="draws 41 in an epoch of size 40: 40 or"):
            second.load_state_dict({**state, "draws": 41})
        for mine, other in zip(first, second, strict=True):
            assert np.array_equal(mine.ids, other.ids)


def state_over(tier, columns: list[gear.Column], first: int) -> dict[str, Any]:
    with tier.buffer(gear.Schema(columns), 64, page_steps=4) as buffer:
        fill(buffer, first)
        loader = buffer.loader(8, **KIND)
        next(loader)
        return copy.deepcopy(loader.state_dict())


@pytest.mark.parametrize(
    ("columns", "first", "stored", "message"),
    [
        ([gear.Column("x", (), "int32")], 0, True, "with schema"),
        (COLUMNS, 1, True, "buffer [0-9a-f]{8}: this buffer is [0-9a-f]{8}; load the buffer that"),
        (COLUMNS, 0, False, "buffer [0-9a-f]{8}: nothing was ever stored in this one"),
    ],
    ids=["schema", "content", "empty"],
)
def test_a_state_of_another_buffer_is_refused(
    tier, columns: list[gear.Column], first: int, stored: bool, message: str
) -> None:
    state = state_over(tier, columns, first)
    with tier.buffer(gear.Schema(COLUMNS), 64, page_steps=4) as buffer:
        if stored:
            fill(buffer)
        loader = buffer.loader(8, **KIND)
        with pytest.raises(gear.InvalidArgument, match=message):
            loader.load_state_dict(state)


def test_a_buffer_stays_the_same_one(tier, tmp_path) -> None:
    """While it takes more steps and loses the first, saved and loaded, and filled the same way."""
    state = state_over(tier, COLUMNS, 0)
    with tier.buffer(gear.Schema(COLUMNS), 64, page_steps=4) as buffer:
        fill(buffer)
        buffer.loader(8, **KIND).load_state_dict(state)
        for _ in range(3):
            fill(buffer, 500)
        buffer.loader(8, **KIND).load_state_dict(state)
        buffer.save(tmp_path / "replay")
    with tier.load(tmp_path / "replay") as buffer:
        loader = buffer.loader(8, **KIND)
        loader.load_state_dict(state)
        assert loader.state_dict()["buffer"] == state["buffer"] != 0


def test_options_that_say_the_same_are_the_same(tier) -> None:
    with tier.buffer(gear.Schema(COLUMNS), 64, page_steps=4) as buffer:
        fill(buffer)
        first = buffer.loader(8, sampler=gear.Weighted(1, 0.5), **KIND)
        next(first)
        second = buffer.loader(
            8, sampler=gear.Weighted(1.0, 0.25), outputs={"x": gear.Step()}, **KIND
        )
        second.load_state_dict(first.state_dict())
        assert second.beta == 0.5
        assert np.array_equal(next(second).ids, next(first).ids)
