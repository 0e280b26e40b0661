"""What NCCL's algorithms take: closed forms by hand, and tables that others have published."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gear.emu import OPERATIONS, Links, Number, Shape
from gear.emu.models.formulas import Ways, fastest, lines
from gear.errors import InvalidArgument

MIB = 1 << 20
H100 = Links.load("hgx-h100")

# One protocol, hops of 1 us inside a node and 3 between (5 in a tree), 10 us a call; 100 GB/s
# inside a node, 10 GB/s a NIC.
PLAIN = Links(
    "plain",
    {
        name: Number(value)
        for name, value in {
            "nvlink.gb_per_s": 100,
            "nic.gb_per_s": 10,
            "nic.per_node": 4,
            "simple.share": 1,
            "simple.base_us": 10,
            "simple.nvlink_us": 1,
            "simple.nic_us": 3,
            "simple.tree_us": 5,
        }.items()
    },
)


def by_name(operation: str, shape: Shape, links: Links = PLAIN) -> dict[str, tuple[float, float]]:
    """us of a call of nothing, and us a GB, by algorithm."""
    return {
        line.name.split(",")[0]: (line.call_s * 1e6, line.byte_s * 1e15)
        for line in lines(operation, shape, links)
    }


def close(us: float, us_a_gb: float) -> object:
    return pytest.approx((us, us_a_gb), rel=1e-12)


def test_inside_of_a_node() -> None:
    four = Shape(4)
    assert by_name("all_reduce", four) == {"ring": close(10 + 6, 1.5 * 1e6 / 100)}
    assert by_name("all_gather", four) == {"ring": close(10 + 3, 0.75 * 1e6 / 100)}
    assert by_name("reduce_scatter", four) == by_name("all_gather", four)
    assert by_name("all_to_all", four) == {"direct": close(10 + 3, 0.75 * 1e6 / 100)}
    assert by_name("broadcast", four) == {"pipelined": close(10 + 2, 1e6 / 100)}
    assert by_name("reduce", four) == by_name("broadcast", four)
    assert by_name("send", four) == {"direct": close(10 + 1, 1e6 / 100)}


def test_between_nodes() -> None:
    """Four GPUs with a NIC each on two nodes: a node sends 40 GB/s, a GPU 10 of them."""
    eight = Shape(4, 2)
    found = by_name("all_reduce", eight)
    assert found["ring"] == close(10 + 2 * (6 * 1 + 1 * 3), 2 * 7 / 8 * 1e6 / 40)
    assert found["tree"] == close(10 + 2 * (3 * 1 + 1 * 5), 2 * 1e6 / (0.9 * 40))
    inside = 0.75 * 1e6 / 100
    between = 2 * 1 / 2 * 1e6 / 10 / 4  # a quarter of the tensor a GPU
    assert found["two levels"] == close(2 * 13 + 10 + 2 * 3, 2 * inside + between)
    assert by_name("all_to_all", eight) == {"direct": close(10 + 7 * 3, 4 / 8 * 1e6 / 10)}
    assert by_name("send", Shape(1, 2)) == {"direct": close(10 + 3, 1e6 / 10)}


def test_gpus_share_the_nics_of_their_node() -> None:
    assert Ways(PLAIN, Shape(8, 2), "simple").nic == pytest.approx(5e9)
    assert Ways(PLAIN, Shape(2, 2), "simple").nic == pytest.approx(10e9)
    assert Ways(PLAIN, Shape(1, 2), "simple").bus == pytest.approx(10e9)
    assert Ways(PLAIN, Shape(4, 2), "simple").bus == pytest.approx(40e9)


def test_a_rank_alone_waits_for_nobody() -> None:
    assert {fastest(operation, Shape(1), PLAIN, MIB) for operation in OPERATIONS} == {
        (0.0, "alone")
    }


def test_switches_sum_where_that_was_measured() -> None:
    """By switches 8 GPUs reach what rings do not, 2 do not: no formula finds that."""
    assert "nvls" in by_name("all_reduce", Shape(8), H100)
    assert "nvls" not in by_name("all_reduce", Shape(2), H100)
    assert "nvls tree" in by_name("all_reduce", Shape(8, 4), H100)
    assert "nvls" not in by_name("all_gather", Shape(8), H100)
    seconds, name = fastest("all_reduce", Shape(8), H100, 4 << 30)
    assert name == "nvls"
    assert 2 * 7 / 8 * (4 << 30) / seconds == pytest.approx(480e9, rel=0.01)  # bus bandwidth


def test_an_operation_that_does_not_exist_is_named() -> None:
    with pytest.raises(InvalidArgument, match="operation 'all_sum': all_reduce, all_gather, "):
        lines("all_sum", Shape(8), PLAIN)


@given(
    operation=st.sampled_from(sorted(OPERATIONS)),
    shape=st.builds(Shape, st.integers(1, 16), st.integers(1, 512)),
    size=st.integers(0, 1 << 33),
    more=st.integers(0, 1 << 33),
)
def test_more_bytes_take_longer(operation: str, shape: Shape, size: int, more: int) -> None:
    one, _ = fastest(operation, shape, H100, size)
    other, _ = fastest(operation, shape, H100, size + more)
    assert 0 <= one <= other < math.inf


# (operation, shape, bytes, us): what nccl-tests printed on machines of others, which no number of
# the links was taken from.
PUBLISHED = [
    *(
        # NVIDIA/nccl-tests #232: two nodes with one H100 each, NCCL_ALGO=Tree.
        ("all_reduce", Shape(1, 2), size * MIB, us)
        for size, us in [(2, 113.2), (4, 154.4), (8, 231.4), (16, 420.5), (32, 812.3)]
    ),
    # NVIDIA/nccl #2140: eight H100, NVLS; 275 GB/s of the tensor.
    ("all_reduce", Shape(8), 8 << 30, (8 << 30) / 275e3),
    # NVIDIA/nccl #1218: 32 nodes of eight H100; 340 GB/s by the bus for all_reduce.
    ("all_reduce", Shape(8, 32), 2 << 30, 2 * 255 / 256 * (2 << 30) / 340e3),
]


def test_published_tables_are_met() -> None:
    errors = []
    for operation, shape, size, us in PUBLISHED:
        seconds, name = fastest(operation, shape, H100, size)
        errors.append(seconds * 1e6 / us - 1)
        print(f"{operation:12} {shape!s:20} {size:12} B {us:9.1f} us {errors[-1]:+7.1%} {name}")
    assert sorted(map(abs, errors))[len(errors) // 2] <= 0.2
    assert max(map(abs, errors)) <= 0.5
