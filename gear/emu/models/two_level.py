"""The built-in model: NCCL's algorithms by formula, and what was measured in their place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gear.emu.models.curve import BASES, Curve, Point
from gear.emu.models.formulas import fastest
from gear.emu.models.links import Links, Measured
from gear.emu.models.shape import Shape
from gear.emu.models.spread import spread

SIZES = tuple(1 << power for power in range(8, 36))  # 256 B to 32 GiB


def two_level(operation: str, shape: Shape, links: Links) -> Curve:
    """What `operation` takes in a group of that shape, 256 B to 32 GiB.

    Where links.measured has the operation in a group of this shape, its points are the curve;
    below the first and above the last, the formula goes on from them. Between two shapes that were
    measured, the formula is scaled to meet both ends; beyond them, to meet the nearest. Shapes of
    one node and of several are apart. Where nothing was measured, the formula stands alone, as sure
    as the least sure number of `links`, with the interval in which nine of ten published tables lie
    about it.

    Raises:
        InvalidArgument: for an operation that is none of gear.emu.OPERATIONS.
    """
    formula = _formula(operation, shape, links)
    if shape.ranks == 1:
        return formula
    alike = [
        one
        for one in links.measured
        if one.operation == operation and (one.shape.nodes == 1) == (shape.nodes == 1)
    ]
    measured = {
        one: _met(_formula(operation, one, links), _points(alike, one))
        for one in sorted({one.shape for one in alike}, key=lambda one: (one.ranks, one))
    }
    if shape in measured:
        return measured[shape]
    near = {
        one: (_formula(operation, one, links), measured[one])
        for one in _nearest(shape, list(measured))
    }
    return _scaled(formula, shape, near) if near else formula


def _formula(operation: str, shape: Shape, links: Links) -> Curve:
    basis = max((one.basis for one in links.numbers.values()), key=BASES.index)
    points = []
    for size in SIZES:
        seconds, name = fastest(operation, shape, links, size)
        low, high = (seconds * each for each in spread(size))
        points.append(Point(size, seconds, low, high, basis, f"{links.name}: {name}"))
    return Curve(tuple(points))


def _points(measured: Sequence[Measured], shape: Shape) -> list[Point]:
    return sorted(
        (one.point for one in measured if one.shape == shape), key=lambda point: point.bytes
    )


def _met(formula: Curve, points: Sequence[Point]) -> Curve:
    """`points`, and the formula where they do not reach, scaled to meet the first and the last."""
    first, last = points[0], points[-1]
    below = [
        one.scaled(_ratio(first, formula), "extrapolated")
        for one in formula.points
        if one.bytes < first.bytes
    ]
    above = [
        one.scaled(_ratio(last, formula), "extrapolated")
        for one in formula.points
        if one.bytes > last.bytes
    ]
    return Curve((*below, *points, *above))


def _ratio(point: Point, formula: Curve) -> float:
    return point.seconds / formula.at(point.bytes).seconds


def _nearest(shape: Shape, measured: Sequence[Shape]) -> list[Shape]:
    """The measured shapes on both sides of `shape`, by ranks; one where it lies beyond them."""
    fewer = [one for one in measured if one.ranks <= shape.ranks]
    more = [one for one in measured if one.ranks > shape.ranks]
    return fewer[-1:] + more[:1]


def _scaled(formula: Curve, shape: Shape, near: Mapping[Shape, tuple[Curve, Curve]]) -> Curve:
    """The formula times what measurements took of it, at one shape or two that were measured."""
    basis = "interpolated" if len(near) == 2 else "extrapolated"
    points: list[Point] = []
    for point in formula.points:
        ratios = [
            measured.at(point.bytes).seconds / other.at(point.bytes).seconds
            for other, measured in near.values()
        ]
        one = point.scaled(_at(shape, list(near), ratios), basis)
        # Where a ratio falls faster than the formula rises.
        least = points[-1].seconds if points else 0.0
        points.append(one if one.seconds >= least else one.scaled(least / one.seconds, basis))
    return Curve(tuple(points))


def _at(shape: Shape, ends: Sequence[Shape], values: Sequence[float]) -> float:
    """Between the values at two shapes, linear in the logarithm of the ranks; that of one alone."""
    if len(ends) == 1:
        return values[0]
    first, own, last = (math.log2(one.ranks) for one in (ends[0], shape, ends[1]))
    return values[0] + (own - first) / (last - first) * (values[1] - values[0])
