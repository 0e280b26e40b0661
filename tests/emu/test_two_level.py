"""The built-in model: what was measured takes the place of formulas, and every point says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gear.emu import OPERATIONS, Links, Measured, Point, Shape, two_level

H100 = Links.load("hgx-h100")
MIB = 1 << 20


def measured(shape: Shape, factor: float, sizes: range = range(20, 31)) -> list[Measured]:
    """What takes `factor` times the formula, 1 MiB to 1 GiB."""
    formula = two_level("all_reduce", shape, H100)
    return [
        Measured(
            "all_reduce",
            shape,
            Point(1 << power, formula.at(1 << power).seconds * factor, basis="measured"),
        )
        for power in sizes
    ]


def ratio(links: Links, shape: Shape, size: int, operation: str = "all_reduce") -> float:
    return (
        two_level(operation, shape, links).at(size).seconds
        / two_level(operation, shape, H100).at(size).seconds
    )


def basis(links: Links, shape: Shape, size: int) -> str:
    return two_level("all_reduce", shape, links).at(size).basis


def test_the_formula_alone_is_as_sure_as_its_least_sure_number() -> None:
    assert basis(H100, Shape(8, 64), 64 * MIB) == "published"
    given = H100.with_numbers({name: number.value for name, number in H100.numbers.items()})
    assert basis(given, Shape(8, 64), 64 * MIB) == "given"


def test_where_it_was_measured_its_points_are_the_curve() -> None:
    links = H100.with_measured(measured(Shape(8), 1.3))
    assert ratio(links, Shape(8), 64 * MIB) == pytest.approx(1.3)
    assert basis(links, Shape(8), 64 * MIB) == "measured"
    assert basis(links, Shape(8), 96 * MIB) == "interpolated"


def test_below_and_above_the_formula_goes_on_from_them() -> None:
    links = H100.with_measured(measured(Shape(8), 1.3))
    for size in (4096, 8 << 30):
        assert ratio(links, Shape(8), size) == pytest.approx(1.3)
        assert basis(links, Shape(8), size) == "extrapolated"


def test_between_two_shapes_the_formula_meets_both_ends() -> None:
    links = H100.with_measured([*measured(Shape(2), 1.1), *measured(Shape(8), 1.5)])
    assert ratio(links, Shape(4), 64 * MIB) == pytest.approx(1.3)  # half-way in log2 of the ranks
    assert basis(links, Shape(4), 64 * MIB) == "interpolated"
    assert ratio(links, Shape(16), 64 * MIB) == pytest.approx(1.5)
    assert basis(links, Shape(16), 64 * MIB) == "extrapolated"


def test_one_node_says_nothing_of_several_and_one_operation_nothing_of_others() -> None:
    links = H100.with_measured(measured(Shape(8), 1.3))
    assert ratio(links, Shape(8, 2), 64 * MIB) == pytest.approx(1)
    assert basis(links, Shape(8, 2), 64 * MIB) == "published"
    assert ratio(links, Shape(8), 64 * MIB, "all_gather") == pytest.approx(1)


def test_two_gpus_do_not_tell_of_eight() -> None:
    """By what two take, eight would take what rings do; they are 31 % faster, by their switches."""
    links = H100.with_measured(measured(Shape(2), 1.0))
    assert basis(links, Shape(8), 1 << 30) == "extrapolated"


@given(
    operation=st.sampled_from(sorted(OPERATIONS)),
    shape=st.builds(Shape, st.integers(1, 16), st.integers(1, 512)),
    factors=st.lists(st.floats(0.25, 4), min_size=2, max_size=2),
)
def test_any_measurement_leaves_a_curve(operation: str, shape: Shape, factors: list[float]) -> None:
    """A Curve refuses times that fall."""
    links = H100.with_measured([*measured(Shape(2), factors[0]), *measured(Shape(8), factors[1])])
    assert two_level(operation, shape, links).at(MIB).seconds >= 0
