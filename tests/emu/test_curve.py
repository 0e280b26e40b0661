"""Curves: what lies between points and beyond them, and what is no curve."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gear.emu import BASES, Curve, Point
from gear.emu.models.curve import left_out, rising
from gear.errors import InvalidArgument

KIB = 1 << 10


def of(*seconds: tuple[int, float], basis: str = "measured") -> Curve:
    return Curve.of(seconds, basis)


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    size, seconds, points = draw(st.integers(1, 1000)), draw(st.floats(0, 1e-3)), []
    for _ in range(draw(st.integers(1, 8))):
        points.append((size, seconds))
        size = draw(st.integers(size + 1, 2 * size))
        seconds += draw(st.floats(0, 1e-3))
    return of(*points)


@given(curve=curves(), sizes=st.lists(st.integers(0, 400_000), min_size=1))
def test_it_is_linear_between_its_points(curve: Curve, sizes: list[int]) -> None:
    bytes_, seconds = zip(*((one.bytes, one.seconds) for one in curve.points), strict=True)
    for size in sizes:
        if size <= bytes_[-1]:
            wanted = np.interp(size, bytes_, seconds)  # level below the first
            assert math.isclose(curve.at(size).seconds, wanted, rel_tol=1e-12, abs_tol=1e-18)


@given(curve=curves(), one=st.integers(0, 400_000), other=st.integers(0, 400_000))
def test_more_bytes_never_take_less(curve: Curve, one: int, other: int) -> None:
    fewer, more = sorted((one, other))
    assert curve.at(fewer).seconds <= curve.at(more).seconds * (1 + 1e-12)


def test_beyond_the_last_point_it_goes_on_as_steeply_and_says_so() -> None:
    curve = of((KIB, 2e-6), (2 * KIB, 3e-6))
    point = curve.at(4 * KIB)
    assert point.seconds == pytest.approx(5e-6)
    assert point.basis == "extrapolated"
    assert of((KIB, 2e-6)).at(3 * KIB).seconds == pytest.approx(6e-6)


@pytest.mark.parametrize(
    ("first", "last", "between"),
    [
        ("measured", "measured", "interpolated"),
        ("published", "published", "published"),
        ("given", "given", "given"),
        ("measured", "extrapolated", "extrapolated"),
        ("published", "measured", "published"),
    ],
)
def test_what_lies_between_is_as_sure_as_the_less_sure_end(
    first: str, last: str, between: str
) -> None:
    curve = Curve((Point(KIB, 1e-6, basis=first), Point(2 * KIB, 2e-6, basis=last)))
    assert [curve.at(size).basis for size in (KIB, KIB + 1, 2 * KIB)] == [first, between, last]


def test_intervals_are_read_as_the_seconds_are() -> None:
    curve = Curve((Point(1000, 2e-6, 1e-6, 4e-6), Point(2000, 4e-6, 2e-6, 8e-6)))
    assert curve.at(1500).interval == pytest.approx((1.5e-6, 6e-6))
    low, high = curve.at(4000).interval
    assert low <= curve.at(4000).seconds <= high


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([], "a curve without a point"),
        ([(2 * KIB, 1.0), (KIB, 2.0)], "has 1024 bytes behind 2048"),
        ([(KIB, 1.0), (KIB, 2.0)], "has 1024 bytes behind 1024"),
        ([(KIB, 1.0), (4 * KIB, 2.0)], "nothing between 1024 and 4096 bytes"),
        ([(KIB, 2.0), (2 * KIB, 1.0)], "2048 bytes take 1.0 s and 1024 bytes 2.0 s"),
    ],
    ids=["none", "order", "twice", "gap", "falls"],
)
def test_what_is_no_curve_is_refused(points: list[tuple[int, float]], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        of(*points)


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_seconds_that_nothing_takes_are_refused(seconds: float) -> None:
    with pytest.raises(InvalidArgument, match="a point of 1024 bytes takes"):
        Point(KIB, seconds)


def test_an_interval_without_its_seconds_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"takes 1\.0 s, from 2\.0 to 3\.0"):
        Point(KIB, 1.0, low=2.0, high=3.0)


def test_a_basis_is_one_of_those_there_are() -> None:
    with pytest.raises(InvalidArgument, match="basis 'guessed'.*" + ", ".join(BASES)):
        Point(KIB, 1.0, basis="guessed")


def test_a_message_of_nothing_may_come_first() -> None:
    curve = of((0, 1e-6), (KIB, 3e-6))
    assert curve.at(0).seconds == 1e-6
    assert curve.at(KIB // 2).seconds == pytest.approx(2e-6)


@given(seconds=st.lists(st.floats(1e-6, 1e-3), min_size=1, max_size=12))
def test_rising_points_are_the_nearest_that_never_fall(seconds: list[float]) -> None:
    points = [Point(1 << power, one, basis="measured") for power, one in enumerate(seconds)]
    found = rising(points)
    Curve(found)  # takes them
    assert [one.bytes for one in found] == [one.bytes for one in points]
    assert math.isclose(sum(one.seconds for one in found), sum(seconds))
    # The condition of the least squares: no part of the front lies above what was measured.
    for end in range(1, len(seconds) + 1):
        assert sum(one.seconds for one in found[:end]) <= sum(seconds[:end]) * (1 + 1e-12)
    for one, before in zip(found, points, strict=True):
        low, high = one.interval
        assert low <= before.seconds <= high
    assert rising(found) == found
    if seconds == sorted(seconds):
        assert [one.seconds for one in found] == seconds


def test_how_far_neighbours_miss_a_point() -> None:
    assert left_out(of((0, 1.0), (KIB, 2.0), (2 * KIB, 3.0)).points) == 0
    assert left_out(of((0, 1.0), (KIB, 2.0), (2 * KIB, 5.0)).points) == pytest.approx(0.5)
    assert left_out(of((0, 1.0), (KIB, 2.0)).points) is None
    assert left_out(of((0, 0.0), (KIB, 0.0), (2 * KIB, 0.0)).points) is None
