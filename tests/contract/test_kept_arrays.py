"""A writer keeps nothing of what it was given beyond the call."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

import gear

SCHEMA = gear.Schema([gear.Column("x", (2,), "int64")])


class Array(np.ndarray):
    """An array that can be referred to weakly, as a view of NumPy's own is not."""


def array(count: int) -> Any:
    shape = (count, 2) if count else (2,)
    return np.arange(max(count, 1) * 2).reshape(shape).view(Array)


def test_a_writer_gives_up_the_arrays_of_a_call(tier) -> None:
    with tier.buffer(SCHEMA, 64) as buffer, buffer.writer() as writer:
        one, many, last = array(0), array(5), array(0)
        kept = [weakref.ref(values) for values in (one, many, last)]
        writer.append(x=one)
        writer.extend(x=many)
        writer.end_episode(terminated=True, final={"x": last})
        del one, many, last
        assert [reference() for reference in kept] == [None] * 3


def test_a_refused_call_gives_them_up_too(tier) -> None:
    with tier.buffer(SCHEMA, 64) as buffer, buffer.writer() as writer:
        values = array(5)
        kept = weakref.ref(values)
        with pytest.raises(gear.InvalidArgument, match="y"):
            writer.extend(x=values, y=values)
        del values
        assert kept() is None
