"""What an operation takes, by its bytes."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from gear.arguments import check_count
from gear.errors import InvalidArgument

# What each operation counts as its bytes.
OPERATIONS = {
    "all_reduce": "the tensor",
    "all_gather": "what all ranks give together",
    "reduce_scatter": "what is reduced, before it is scattered",
    "all_to_all": "what a rank gives to all, itself included",
    "broadcast": "the tensor",
    "reduce": "the tensor",
    "gather": "what all ranks give together",
    "scatter": "what all ranks get together",
    "send": "the message",
    "barrier": "none",
}

# Where a number comes from, the surest first.
BASES = ("measured", "given", "interpolated", "published", "extrapolated")


def check_operation(operation: str) -> str:
    """`operation`, or InvalidArgument that names those there are."""
    if operation not in OPERATIONS:
        raise InvalidArgument(f"[emu] operation {operation!r}: {', '.join(OPERATIONS)} are allowed")
    return operation


def weaker(one: str, other: str) -> str:
    """The less sure of two bases."""
    return max(one, other, key=BASES.index)


@dataclass(frozen=True)
class Point:
    """What an operation of so many bytes takes.

    Args:
        bytes: as OPERATIONS counts them, 0 or more.
        seconds: the median where it was measured.
        low: of the interval in which it lies; None: `seconds`.
        high: likewise.
        basis: one of BASES.
        source: where the number comes from, in words.

    Raises:
        InvalidArgument: for other values, and an interval without `seconds` in it.
    """

    bytes: int
    seconds: float
    low: float | None = None
    high: float | None = None
    basis: str = "given"
    source: str = ""

    def __post_init__(self) -> None:
        check_count("[emu] bytes of a point", self.bytes, least=0)
        if self.basis not in BASES:
            raise InvalidArgument(
                f"[emu] basis {self.basis!r} of a point: {', '.join(BASES)} are allowed"
            )
        low, high = self.interval
        if not (0 <= low <= self.seconds <= high < math.inf):
            raise InvalidArgument(
                f"[emu] a point of {self.bytes} bytes takes {self.seconds} s, from {low} to {high}:"
                " finite seconds are allowed, 0 or more, inside of their interval"
            )

    @property
    def interval(self) -> tuple[float, float]:
        """`low` and `high`, in seconds."""
        return (
            self.seconds if self.low is None else self.low,
            self.seconds if self.high is None else self.high,
        )

    def scaled(self, factor: float, basis: str) -> Point:
        """The same at `factor` times the seconds."""
        low, high = self.interval
        return replace(
            self, seconds=self.seconds * factor, low=low * factor, high=high * factor, basis=basis
        )


@dataclass(frozen=True)
class Curve:
    """Points of one operation in one group, the seconds between them linear in the bytes.

    Linear in bytes, since logarithms are twice as wrong between sizes a factor of two apart: 5.1 %
    at most and 10.1 % where every point of a published table is left out in turn (nccl-tests #232).

    Args:
        points: by ascending bytes, each at most twice the one before, and none faster than one of
            fewer bytes. One of 0 bytes may come first.

    Raises:
        InvalidArgument: for other points, or none.
    """

    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise InvalidArgument("[emu] a curve without a point: one or more are needed")
        for one, after in pairwise(self.points):
            if after.bytes <= one.bytes:
                raise InvalidArgument(
                    f"[emu] a curve has {after.bytes} bytes behind {one.bytes}: give each size"
                    " once, in ascending order"
                )
            if after.bytes > 2 * one.bytes > 0:
                raise InvalidArgument(
                    f"[emu] a curve has nothing between {one.bytes} and {after.bytes} bytes: give"
                    " sizes that are a factor of two apart or less"
                )
            if after.seconds < one.seconds:
                raise InvalidArgument(
                    f"[emu] by a curve {after.bytes} bytes take {after.seconds} s and"
                    f" {one.bytes} bytes {one.seconds} s: more bytes cannot take less"
                )

    @classmethod
    def of(cls, seconds: Iterable[tuple[int, float]], basis: str, source: str = "") -> Curve:
        """Of sizes in bytes, and what they take."""
        return cls(tuple(Point(size, time, basis=basis, source=source) for size, time in seconds))

    def at(self, size: int) -> Point:
        """What `size` bytes take.

        Fewer than the first point has take what it does: the way of a message of nothing. More than
        the last go on as steeply as between the last two, and are extrapolated.
        """
        check_count("[emu] bytes", size, least=0)
        place = bisect.bisect_left(self.points, size, key=lambda point: point.bytes)
        if place == 0:
            return replace(self.points[0], bytes=size)
        if place == len(self.points):
            return self._beyond(size)
        after = self.points[place]
        if after.bytes == size:
            return after
        before = self.points[place - 1]
        basis = weaker(before.basis, after.basis)
        return _between(before, after, size, "interpolated" if basis == "measured" else basis)

    def _beyond(self, size: int) -> Point:
        last = self.points[-1]
        if len(self.points) == 1:
            return replace(last.scaled(size / max(1, last.bytes), "extrapolated"), bytes=size)
        return _between(self.points[-2], last, size, "extrapolated")


def rising(points: Iterable[Point]) -> tuple[Point, ...]:
    """Those of measurements, by ascending bytes, so that none is faster than one of fewer bytes.

    Neighbours that were have both their mean: the curve that is nearest to what was measured, by
    the sum of squares (pool adjacent violators; Ayer and others, 1955). Their intervals hold that.
    """
    pools: list[tuple[float, list[Point]]] = []
    for point in points:
        mean, pool = point.seconds, [point]
        while pools and pools[-1][0] > mean:
            earlier = pools.pop()[1]
            pool = [*earlier, *pool]
            mean = sum(one.seconds for one in pool) / len(pool)
        pools.append((mean, pool))
    return tuple(
        replace(one, seconds=mean, low=min(low, mean), high=max(high, mean))
        for mean, pool in pools
        for one in pool
        for low, high in [one.interval]
    )


def left_out(points: Sequence[Point]) -> float | None:
    """By which part of it a curve of the others misses a point at most, each but the ends left out
    in turn; None with fewer than three."""
    around = zip(points, points[1:], points[2:], strict=False)
    missed = [
        abs(_between(before, after, point.bytes, point.basis).seconds / point.seconds - 1)
        for before, point, after in around
        if point.seconds > 0
    ]
    return max(missed, default=None)


def _between(before: Point, after: Point, size: int, basis: str) -> Point:
    share = (size - before.bytes) / (after.bytes - before.bytes)

    def read(one: float, other: float) -> float:
        return one + share * (other - one)

    seconds = read(before.seconds, after.seconds)
    (low, high), (low_after, high_after) = before.interval, after.interval
    return Point(
        size,
        seconds,
        low=max(0.0, min(seconds, read(low, low_after))),
        high=max(seconds, read(high, high_after)),
        basis=basis,
        source=after.source,
    )
