"""What emulated groups give: what gloo gives where emulated ranks hold their mirror's data."""

from __future__ import annotations

from typing import Any

import pytest

import gear.emu as emu

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402, behind the skip
from emu.ranks_of_torch import by_gloo, emulated  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("library")]

ELEMENTS = 6
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
WHOLE = [torch.int64, torch.int32, torch.uint8]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 2e-2, torch.bfloat16: 1e-1}
SUMS = ["SUM", "PRODUCT", "MIN", "MAX"]
OF_BITS = ["BAND", "BOR", "BXOR"]


def data(mirror: int, dtype: torch.dtype, length: int) -> torch.Tensor:
    """Of one real rank, and of all copies of it."""
    made = torch.Generator().manual_seed(mirror)
    if dtype.is_floating_point:
        return (torch.rand(length, generator=made) + 0.5).to(dtype)
    return torch.randint(1, 5, (length,), generator=made).to(dtype)


def mirrors(size: int, real: list[int]) -> list[int]:
    """By the sentence in the documents, slowly."""
    emulated_ones = [member for member in range(size) if member not in real]
    return [
        member if member in real else real[emulated_ones.index(member) % len(real)]
        for member in range(size)
    ]


def waited(work: Any) -> None:
    work.wait()


def all_reduce(op: str) -> Any:
    def play(group: Any, given: torch.Tensor, size: int, rank: int) -> list[torch.Tensor]:
        options = dist.AllreduceOptions()
        options.reduceOp = getattr(dist.ReduceOp, op)
        out = given[:ELEMENTS].clone()
        waited(group.allreduce([out], options))
        return [out]

    return play


def reduce_to(root: int, op: str) -> Any:
    def play(group: Any, given: torch.Tensor, size: int, rank: int) -> list[torch.Tensor]:
        options = dist.ReduceOptions()
        options.reduceOp, options.rootRank = getattr(dist.ReduceOp, op), root % size
        out = given[:ELEMENTS].clone()
        waited(group.reduce([out], options))
        return [out] if rank == root % size else []

    return play


def reduce_scatter(op: str) -> Any:
    def play(group: Any, given: torch.Tensor, size: int, rank: int) -> list[torch.Tensor]:
        options = dist.ReduceScatterOptions()
        options.reduceOp = getattr(dist.ReduceOp, op)
        out = torch.empty(ELEMENTS, dtype=given.dtype)
        lists = [given[i * ELEMENTS : (i + 1) * ELEMENTS].clone() for i in range(size)]
        waited(group.reduce_scatter([out], [lists], options))
        flat = torch.empty(ELEMENTS, dtype=given.dtype)
        waited(group._reduce_scatter_base(flat, given[: size * ELEMENTS].clone(), options))
        return [out, flat]

    return play


def all_gather(group: Any, given: torch.Tensor, size: int, rank: int) -> list[torch.Tensor]:
    outs = [torch.empty(ELEMENTS, dtype=given.dtype) for _ in range(size)]
    waited(group.allgather([outs], [given[:ELEMENTS].clone()]))
    flat = torch.empty(size * ELEMENTS, dtype=given.dtype)
    waited(group._allgather_base(flat, given[:ELEMENTS].clone()))
    return [*outs, flat]


def broadcast_from(root: int) -> Any:
    def play(group: Any, given: torch.Tensor, size: int, rank: int) -> list[torch.Tensor]:
        options = dist.BroadcastOptions()
        options.rootRank = root % size
        out = given[:ELEMENTS].clone()
        waited(group.broadcast([out], options))
        return [out]

    return play


def gather_to(root: int) -> Any:
    def play(group: Any, given: torch.Tensor, size: int, rank: int) -> list[torch.Tensor]:
        options = dist.GatherOptions()
        options.rootRank = root % size
        outs = [torch.empty(ELEMENTS, dtype=given.dtype) for _ in range(size)]
        is_root = rank == root % size
        waited(group.gather([outs] if is_root else [], [given[:ELEMENTS].clone()], options))
        return outs if is_root else []

    return play


def scatter_from(root: int) -> Any:
    def play(group: Any, given: torch.Tensor, size: int, rank: int) -> list[torch.Tensor]:
        options = dist.ScatterOptions()
        options.rootRank = root % size
        out = torch.empty(ELEMENTS, dtype=given.dtype)
        lists = [given[i * ELEMENTS : (i + 1) * ELEMENTS].clone() for i in range(size)]
        waited(group.scatter([out], [lists] if rank == root % size else [], options))
        return [out]

    return play


def all_to_all(group: Any, given: torch.Tensor, size: int, rank: int) -> list[torch.Tensor]:
    out = torch.empty(size * ELEMENTS, dtype=given.dtype)
    waited(group.alltoall_base(out, given[: size * ELEMENTS].clone(), [], []))
    return [out]


def check(play: Any, size: int, real: list[int], dtype: torch.dtype) -> None:
    """The real ranks of an emulated group have what they have among as many of gloo."""
    copies = mirrors(size, real)
    length = 9 * ELEMENTS

    def of_gloo(group: Any, rank: int) -> list[torch.Tensor]:
        return play(group, data(copies[rank], dtype, length), size, rank)

    def of_emu(group: Any, rank: int) -> list[torch.Tensor]:
        return play(group, data(rank, dtype, length), size, rank)

    expected = by_gloo(size, of_gloo)
    found = emulated(emu.Job(size, per_node=1, real=tuple(real)), of_emu)
    is_exact = not dtype.is_floating_point or (len(real) == 1 and size & (size - 1) == 0)
    for rank, ours in zip(real, found, strict=True):
        assert len(ours) == len(expected[rank])
        for mine, theirs in zip(ours, expected[rank], strict=True):
            if is_exact:
                assert torch.equal(mine, theirs)
            else:
                torch.testing.assert_close(
                    mine, theirs, rtol=TOLERANCE[dtype], atol=0, check_dtype=True
                )


@st.composite
def groups(draw: st.DrawFn) -> tuple[int, list[int]]:
    """A size, and which are real."""
    size = draw(st.integers(2, 9))
    real = draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=min(3, size)))
    return size, sorted(real)


@settings(max_examples=25)
@given(groups(), st.sampled_from(SUMS), st.sampled_from([*FLOATS, *WHOLE]))
def test_reductions(group: tuple[int, list[int]], op: str, dtype: torch.dtype) -> None:
    check(all_reduce(op), *group, dtype)


@settings(max_examples=10)
@given(groups(), st.sampled_from(OF_BITS), st.sampled_from(WHOLE))
def test_reductions_of_bits(group: tuple[int, list[int]], op: str, dtype: torch.dtype) -> None:
    check(all_reduce(op), *group, dtype)


@settings(max_examples=15)
@given(groups(), st.sampled_from(SUMS), st.sampled_from([torch.float32, torch.float64]))
def test_what_is_reduced_and_scattered(
    group: tuple[int, list[int]], op: str, dtype: torch.dtype
) -> None:
    check(reduce_scatter(op), *group, dtype)


@settings(max_examples=10)
@given(groups(), st.integers(0, 8), st.sampled_from(SUMS))
def test_reduce_to_any_root(group: tuple[int, list[int]], root: int, op: str) -> None:
    check(reduce_to(root, op), *group, torch.float64)


@settings(max_examples=15)
@given(groups(), st.sampled_from([*FLOATS, *WHOLE]))
def test_what_is_gathered(group: tuple[int, list[int]], dtype: torch.dtype) -> None:
    check(all_gather, *group, dtype)


@settings(max_examples=10)
@given(groups(), st.integers(0, 8))
def test_broadcast_from_any_root(group: tuple[int, list[int]], root: int) -> None:
    check(broadcast_from(root), *group, torch.float32)


@settings(max_examples=10)
@given(groups(), st.integers(0, 8))
def test_gather_to_any_root(group: tuple[int, list[int]], root: int) -> None:
    check(gather_to(root), *group, torch.float32)


@settings(max_examples=10)
@given(groups(), st.data())
def test_scatter_from_a_real_root(group: tuple[int, list[int]], choice: st.DataObject) -> None:
    size, real = group
    check(scatter_from(choice.draw(st.sampled_from(real))), size, real, torch.float32)


@settings(max_examples=15)
@given(groups(), st.sampled_from([torch.float32, torch.int64]))
def test_all_to_all(group: tuple[int, list[int]], dtype: torch.dtype) -> None:
    check(all_to_all, *group, dtype)


def test_a_mean_is_a_sum_of_parts() -> None:
    def play(group: Any, rank: int) -> torch.Tensor:
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.AVG
        out = torch.tensor([float(rank), 1.0])
        waited(group.allreduce([out], options))
        return out

    job = emu.Job(4, real=(0, 1))
    for out in emulated(job, play):
        assert out.tolist() == [0.5, 1.0]


@pytest.mark.parametrize("real", [(0,), (0, 2)])
def test_what_does_not_lie_in_one_piece(real: tuple[int, ...]) -> None:
    def play(group: Any, rank: int) -> list[torch.Tensor]:
        grid = torch.arange(12.0).reshape(3, 4)
        columns = grid.t()
        waited(group.allreduce([columns]))
        outs = [torch.zeros(4, 3).t() for _ in range(4)]
        waited(group.allgather([outs], [torch.arange(12.0).reshape(4, 3).t()]))
        return [grid, *outs]

    for grid, *outs in emulated(emu.Job(4, real=real), play):
        assert torch.equal(grid, 4 * torch.arange(12.0).reshape(3, 4))
        for out in outs:
            assert torch.equal(out, torch.arange(12.0).reshape(4, 3).t())


def test_a_group_of_some_ranks_has_its_own_mirrors() -> None:
    def play(group: Any, rank: int) -> torch.Tensor:
        out = torch.full((2,), float(rank))
        waited(group.allreduce([out]))
        return out

    job = emu.Job(16, real=(1, 5, 6))
    # Members 1, 3, 5, 9, 13: 1 and 5 are real; 3 and 13 are copies of 1, 9 of 5.
    for out in emulated(job, play, ranks=[1, 3, 5, 9, 13]):
        assert out.tolist() == [3 * 1 + 2 * 5.0] * 2
