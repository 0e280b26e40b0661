"""What gear_mpi must do as gloo does: each case is called on every rank of a group."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
OPERATIONS = ["broadcast", "all_reduce", "reduce", "all_gather", "reduce_scatter", "gather"]
OPERATIONS += ["scatter", "all_to_all", "barrier"]
COMPLEX = [torch.complex64, torch.complex128]
DTYPES = [torch.bool, *INTEGERS, *FLOATS, *COMPLEX]
# Elements: nothing, one, odd; more than the small path takes; more than two pieces of a part.
SIZES = [0, 1, 7, 20_011, 300_007]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
BITWISE = [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]


@dataclass(frozen=True)
class Pair:
    """One group of ranks twice: by gear_mpi, and by gloo, which says what is right."""

    mpi: Any
    gloo: Any
    ranks: tuple[int, ...]

    @property
    def rank(self) -> int:
        return dist.get_rank(self.mpi)

    @property
    def size(self) -> int:
        return len(self.ranks)

    def every(self, make: Callable[[int], torch.Tensor]) -> list[torch.Tensor]:
        """What each rank of the group makes: all ranks know it, as it follows from the rank."""
        return [make(rank) for rank in range(self.size)]


CASES: dict[str, Callable[[Pair], None]] = {}


def case(function: Callable[[Pair], None]) -> Callable[[Pair], None]:
    CASES[function.__name__] = function
    return function


def values(rank: int, shape: Any, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Small enough for no sum or product of four to overflow int8, and exact in any type."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    low = 0 if dtype == torch.uint8 else -3
    numbers = torch.randint(low, 4, shape, generator=generator)
    return numbers.to(dtype)


def same(given: torch.Tensor, wanted: torch.Tensor, where: str) -> None:
    assert given.dtype == wanted.dtype, where
    assert torch.equal(given, wanted), f"{where}: {given.flatten()[:8]} for {wanted.flatten()[:8]}"


def reduced(parts: list[torch.Tensor], op: Any) -> torch.Tensor:
    """The reduction of exact values, in their own type."""
    functions = {
        dist.ReduceOp.SUM: torch.add,
        dist.ReduceOp.PRODUCT: torch.mul,
        dist.ReduceOp.MIN: torch.minimum,
        dist.ReduceOp.MAX: torch.maximum,
        dist.ReduceOp.BAND: torch.bitwise_and,
        dist.ReduceOp.BOR: torch.bitwise_or,
        dist.ReduceOp.BXOR: torch.bitwise_xor,
    }
    wanted = parts[0].clone()
    for part in parts[1:]:
        wanted = functions[op](wanted, part)
    return wanted.to(parts[0].dtype)


def reductions() -> list[tuple[torch.dtype, Any]]:
    found = [(dtype, op) for dtype in [*INTEGERS, *FLOATS] for op in OPS]
    found += [(dtype, op) for dtype in INTEGERS for op in BITWISE]
    return found + [(dtype, dist.ReduceOp.SUM) for dtype in COMPLEX]


@case
def all_reduce(pair: Pair) -> None:
    for dtype, op in reductions():
        for size in SIZES if dtype in (torch.float32, torch.int8) else SIZES[:4]:
            parts = pair.every(lambda rank, n=size, d=dtype: values(rank, (n,), d))
            given = parts[pair.rank].clone()
            dist.all_reduce(given, op, group=pair.mpi)
            same(given, reduced(parts, op), f"{dtype} {op} {size}")


@case
def all_reduce_as_gloo(pair: Pair) -> None:
    for dtype in (torch.float32, torch.float64):
        for size in SIZES:
            generator = torch.Generator().manual_seed(pair.rank)
            given = torch.randn(size, generator=generator, dtype=dtype)
            wanted = given.clone()
            dist.all_reduce(given, group=pair.mpi)
            dist.all_reduce(wanted, group=pair.gloo)
            torch.testing.assert_close(given, wanted, rtol=1e-5, atol=1e-5)
            # Every rank has the same bits.
            bits = [torch.empty_like(given) for _ in pair.ranks]
            dist.all_gather(bits, given, group=pair.gloo)
            for other in bits:
                same(other, given, f"{dtype} {size}")


def sparse_values(rank: int, dtype: torch.dtype, shape: list[int], count: int) -> torch.Tensor:
    """`count` entries at random places, of which some are given twice."""
    generator = torch.Generator().manual_seed(7 + rank)
    places = torch.stack([torch.randint(0, n, (count,), generator=generator) for n in shape[:2]])
    return torch.sparse_coo_tensor(places, values(rank, (count, *shape[2:]), dtype), shape)


@case
def all_reduce_sparse(pair: Pair) -> None:
    """As gloo has it: ranks have other places, and other numbers of them, among them none."""
    shapes = [[5, 4], [300, 7, 11], [40_000, 1, 64]]
    for dtype in [*INTEGERS, *FLOATS]:
        for shape in shapes if dtype == torch.float32 else shapes[:2]:
            counts = [0, 30, 3000, 1][: pair.size] if len(shape) == 3 else [0, 9, 3, 1]
            parts = [sparse_values(rank, dtype, shape, counts[rank]) for rank in range(pair.size)]
            wanted = reduced([part.to_dense() for part in parts], dist.ReduceOp.SUM)
            given = parts[pair.rank].clone()
            dist.all_reduce(given, group=pair.mpi)
            assert given.is_coalesced(), f"{dtype} {shape}"
            same(given.to_dense(), wanted, f"{dtype} {shape}")
            works = [parts[pair.rank].clone() for _ in range(2)]
            ends = [dist.all_reduce(one, group=pair.mpi, async_op=True) for one in works]
            for end in reversed(ends):
                end.wait()
            for one, end in zip(works, ends, strict=True):
                same(one.to_dense(), wanted, f"{dtype} {shape}, later")
                same(end.get_future().wait()[0].to_dense(), wanted, f"{dtype} {shape}, future")
    floats = [
        torch.sparse_coo_tensor(
            torch.arange(50)[None], torch.randn(50, generator=torch.Generator().manual_seed(rank))
        )
        for rank in range(pair.size)
    ]
    given, as_gloo = floats[pair.rank].clone(), floats[pair.rank].clone()
    dist.all_reduce(given, group=pair.mpi)
    dist.all_reduce(as_gloo, group=pair.gloo)
    same(given.to_dense(), as_gloo.to_dense(), "in the order of gloo's additions")


@case
def all_reduce_of_bool(pair: Pair) -> None:
    """As torch's reductions of bool: a sum is "or", a product "and"."""
    parts = pair.every(lambda rank: values(rank, (77,), torch.bool))
    stacked = torch.stack(parts)
    odd = stacked.sum(0) % 2 == 1
    wanted = {
        dist.ReduceOp.SUM: stacked.any(0),
        dist.ReduceOp.MAX: stacked.any(0),
        dist.ReduceOp.BOR: stacked.any(0),
        dist.ReduceOp.PRODUCT: stacked.all(0),
        dist.ReduceOp.MIN: stacked.all(0),
        dist.ReduceOp.BAND: stacked.all(0),
        dist.ReduceOp.BXOR: odd,
    }
    for op, right in wanted.items():
        given = parts[pair.rank].clone()
        dist.all_reduce(given, op, group=pair.mpi)
        same(given, right, str(op))


@case
def averages(pair: Pair) -> None:
    for dtype in [*FLOATS, *COMPLEX, torch.int32]:
        for size in SIZES[:4]:
            parts = pair.every(lambda rank, n=size, d=dtype: values(rank, (n,), d))
            total = reduced(parts, dist.ReduceOp.SUM)
            if dtype.is_floating_point or dtype.is_complex:
                wanted = (total / pair.size).to(dtype)
            else:
                wanted = torch.div(total, pair.size, rounding_mode="trunc")
            given = parts[pair.rank].clone()
            dist.all_reduce(given, dist.ReduceOp.AVG, group=pair.mpi)
            torch.testing.assert_close(given, wanted)
            if size == SIZES[3]:
                continue
            whole = torch.cat([parts[pair.rank]] * pair.size)
            given = torch.empty_like(parts[0])
            dist.reduce_scatter_tensor(given, whole, dist.ReduceOp.AVG, group=pair.mpi)
            torch.testing.assert_close(given, wanted)


@case
def premultiplied_sums(pair: Pair) -> None:
    for factor in (0.5, torch.tensor([0.25])):
        op = dist._make_nccl_premul_sum(factor)
        for size in SIZES:
            parts = pair.every(lambda rank, n=size: values(rank, (n,), torch.float32))
            wanted = reduced(parts, dist.ReduceOp.SUM) * factor
            given = parts[pair.rank].clone()
            dist.all_reduce(given, op, group=pair.mpi)
            same(given, wanted, f"{factor} {size}")
            kept = parts[pair.rank].clone()
            dist.reduce(kept, pair.ranks[0], op, group=pair.mpi)
            same(kept, wanted if pair.rank == 0 else parts[pair.rank], f"reduce {factor} {size}")
            whole = torch.cat([parts[pair.rank]] * pair.size)
            given = torch.empty(size)
            dist.reduce_scatter_tensor(given, whole, op, group=pair.mpi)
            same(given, wanted, f"reduce_scatter {factor} {size}")


@case
def nans_stay(pair: Pair) -> None:
    for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.SUM):
        for dtype in FLOATS:
            given = torch.full((5,), float(pair.rank), dtype=dtype)
            given[pair.rank % 5] = float("nan")
            dist.all_reduce(given, op, group=pair.mpi)
            wanted = torch.zeros(5, dtype=torch.bool)
            wanted[: pair.size] = True
            assert torch.equal(given.isnan(), wanted), (op, dtype, given)


@case
def all_reduce_coalesced(pair: Pair) -> None:
    shapes = [(3,), (40_000,), (2, 5), (0,), (70_001,)]
    every = [
        pair.every(lambda r, s=s, i=i: values(r, s, torch.float32, i)) for i, s in enumerate(shapes)
    ]
    given = [parts[pair.rank].clone() for parts in every]
    options = dist.AllreduceCoalescedOptions()
    pair.mpi.allreduce_coalesced(given, options).wait()
    for tensor, parts in zip(given, every, strict=True):
        same(tensor, reduced(parts, dist.ReduceOp.SUM), str(tensor.shape))


@case
def reduce(pair: Pair) -> None:
    for root in range(pair.size):
        for dtype, op in [(torch.float32, dist.ReduceOp.SUM), (torch.int8, dist.ReduceOp.MAX)]:
            for size in SIZES:
                parts = pair.every(lambda rank, n=size, d=dtype: values(rank, (n,), d))
                given = parts[pair.rank].clone()
                dist.reduce(given, pair.ranks[root], op, group=pair.mpi)
                # Other ranks keep what they have.
                wanted = reduced(parts, op) if pair.rank == root else parts[pair.rank]
                same(given, wanted, f"{root} {dtype} {size}")


@case
def broadcast(pair: Pair) -> None:
    for root in range(pair.size):
        for dtype in DTYPES:
            for size in SIZES if dtype == torch.float32 else SIZES[:3]:
                parts = pair.every(lambda rank, n=size, d=dtype: values(rank, (n,), d))
                given = parts[pair.rank].clone()
                dist.broadcast(given, pair.ranks[root], group=pair.mpi)
                same(given, parts[root], f"{root} {dtype} {size}")


@case
def all_gather(pair: Pair) -> None:
    for dtype in DTYPES:
        for size in SIZES if dtype == torch.float32 else SIZES[:3]:
            parts = pair.every(lambda rank, n=size, d=dtype: values(rank, (n, 2), d))
            given = [torch.empty_like(part) for part in parts]
            dist.all_gather(given, parts[pair.rank], group=pair.mpi)
            for tensor, part in zip(given, parts, strict=True):
                same(tensor, part, f"{dtype} {size}")
            flat = torch.empty(pair.size * size, 2, dtype=dtype)
            dist.all_gather_into_tensor(flat, parts[pair.rank], group=pair.mpi)
            same(flat, torch.cat(parts), f"into_tensor {dtype} {size}")


@case
def all_gather_uneven(pair: Pair) -> None:
    for scale in (1, 40_000):
        parts = pair.every(lambda rank, s=scale: values(rank, ((rank + 1) % 3 * s,), torch.float32))
        given = [torch.empty_like(part) for part in parts]
        dist.all_gather(given, parts[pair.rank], group=pair.mpi)
        for tensor, part in zip(given, parts, strict=True):
            same(tensor, part, str(scale))


@case
def all_gather_coalesced(pair: Pair) -> None:
    shapes = [(3,), (50_000,), (2, 5)]
    every = [
        pair.every(lambda r, s=s, i=i: values(r, s, torch.int32, i)) for i, s in enumerate(shapes)
    ]
    own = [parts[pair.rank] for parts in every]
    given = [
        torch.empty(pair.size * part.shape[0], *part.shape[1:], dtype=part.dtype) for part in own
    ]
    pair.mpi.allgather_into_tensor_coalesced(given, own).wait()
    for tensor, parts in zip(given, every, strict=True):
        same(tensor, torch.cat(parts), str(tensor.shape))


@case
def gather(pair: Pair) -> None:
    for root in range(pair.size):
        for size in SIZES:
            parts = pair.every(lambda rank, n=size: values(rank, (n,), torch.float16))
            given = [torch.empty_like(part) for part in parts]
            own = given if pair.rank == root else None
            dist.gather(parts[pair.rank], own, pair.ranks[root], group=pair.mpi)
            if own is not None:
                for tensor, part in zip(given, parts, strict=True):
                    same(tensor, part, f"{root} {size}")


@case
def scatter(pair: Pair) -> None:
    for root in range(pair.size):
        for size in SIZES:
            parts = pair.every(lambda rank, n=size: values(rank, (n,), torch.int64))
            given = torch.empty_like(parts[0])
            own = parts if pair.rank == root else None
            dist.scatter(given, own, pair.ranks[root], group=pair.mpi)
            same(given, parts[pair.rank], f"{root} {size}")


@case
def reduce_scatter(pair: Pair) -> None:
    for dtype, op in reductions():
        for size in SIZES if dtype == torch.float32 else SIZES[:3]:
            # What rank r gives for rank s follows from both.
            every = [
                pair.every(lambda r, s=s, n=size, d=dtype: values(r, (n,), d, s + 1))
                for s in range(pair.size)
            ]
            wanted = reduced(every[pair.rank], op)
            inputs = [parts[pair.rank] for parts in every]
            given = torch.empty_like(wanted)
            dist.reduce_scatter(given, inputs, op, group=pair.mpi)
            same(given, wanted, f"{dtype} {op} {size}")
            given = torch.empty_like(wanted)
            dist.reduce_scatter_tensor(given, torch.cat(inputs), op, group=pair.mpi)
            same(given, wanted, f"tensor {dtype} {op} {size}")


@case
def reduce_scatter_uneven(pair: Pair) -> None:
    lengths = [(rank * 30_011) % 70_000 for rank in range(pair.size)]
    every = [
        pair.every(lambda r, s=s: values(r, (lengths[s],), torch.float32, s))
        for s in range(pair.size)
    ]
    wanted = reduced(every[pair.rank], dist.ReduceOp.SUM)
    given = torch.empty_like(wanted)
    dist.reduce_scatter(given, [parts[pair.rank] for parts in every], group=pair.mpi)
    same(given, wanted, str(lengths))


@case
def reduce_scatter_coalesced(pair: Pair) -> None:
    lengths = [4, 33_000, 1]
    every = [
        pair.every(lambda r, n=n: values(r, (n * pair.size,), torch.float64, n)) for n in lengths
    ]
    given = [torch.empty(n, dtype=torch.float64) for n in lengths]
    pair.mpi.reduce_scatter_tensor_coalesced(given, [parts[pair.rank] for parts in every]).wait()
    for tensor, parts, n in zip(given, every, lengths, strict=True):
        total = reduced(parts, dist.ReduceOp.SUM)
        same(tensor, total[pair.rank * n : (pair.rank + 1) * n], str(n))


@case
def all_to_all(pair: Pair) -> None:
    for dtype in DTYPES:
        for size in SIZES if dtype == torch.float32 else SIZES[:3]:
            every = [
                pair.every(lambda r, s=s, n=size, d=dtype: values(r, (n, 3), d, s))
                for s in range(pair.size)
            ]
            inputs = [parts[pair.rank] for parts in every]
            wanted = every[pair.rank]
            given = [torch.empty_like(part) for part in wanted]
            dist.all_to_all(given, inputs, group=pair.mpi)
            for tensor, part in zip(given, wanted, strict=True):
                same(tensor, part, f"{dtype} {size}")
            flat = torch.empty(pair.size * size, 3, dtype=dtype)
            dist.all_to_all_single(flat, torch.cat(inputs), group=pair.mpi)
            same(flat, torch.cat(wanted), f"single {dtype} {size}")


@case
def all_to_all_of_random_splits(pair: Pair) -> None:
    """Of any splits, zero among them; the same on all ranks, as they come from one seed."""
    choice = random.Random(17)
    for number in range(40):
        most = choice.choice([1, 5, 50, 20_000])
        columns = choice.choice([1, 3])
        rows = [[choice.randint(0, most) for _ in pair.ranks] for _ in pair.ranks]
        whole = [values(r, (sum(rows[r]), columns), torch.int32, number) for r in range(pair.size)]
        wanted = torch.cat([whole[r].split(rows[r])[pair.rank] for r in range(pair.size)])
        given = torch.empty_like(wanted)
        taken = [rows[r][pair.rank] for r in range(pair.size)]
        dist.all_to_all_single(given, whole[pair.rank], taken, rows[pair.rank], group=pair.mpi)
        same(given, wanted, f"{number} {rows}")


@case
def other_strides(pair: Pair) -> None:
    """What is not contiguous is read and written as torch sees it."""
    parts = pair.every(lambda rank: values(rank, (6, 4), torch.float32))
    total = reduced(parts, dist.ReduceOp.SUM)
    given = parts[pair.rank].t().contiguous().t()
    dist.all_reduce(given, group=pair.mpi)
    same(given, total, "transposed")
    wide = torch.zeros(6, 8)
    wide[:, ::2] = parts[pair.rank]
    dist.all_reduce(wide[:, ::2], group=pair.mpi)
    same(wide[:, ::2], total, "every second")
    assert not wide[:, 1::2].any()
    wide = torch.zeros(6, 8)
    lists = [wide[:, ::2] if rank == 0 else torch.empty(6, 4) for rank in range(pair.size)]
    dist.all_gather(lists, parts[pair.rank], group=pair.mpi)
    same(wide[:, ::2], parts[0], "gathered")


@case
def messages(pair: Pair) -> None:
    """A ring, with tags that come in another order than they are sent in."""
    if pair.size == 1:
        return
    for size in SIZES:
        to, source = (pair.rank + 1) % pair.size, (pair.rank - 1) % pair.size
        sent = [values(pair.rank, (size,), torch.float32, tag) for tag in range(3)]
        works = [
            dist.isend(tensor, pair.ranks[to], group=pair.mpi, tag=tag)
            for tag, tensor in enumerate(sent)
        ]
        for tag in (2, 0, 1):
            given = torch.empty(size)
            assert (
                dist.recv(given, pair.ranks[source], group=pair.mpi, tag=tag) == pair.ranks[source]
            )
            same(given, values(source, (size,), torch.float32, tag), f"{size} {tag}")
        for work in works:
            work.wait()


@case
def messages_of_one_tag(pair: Pair) -> None:
    """They come in the order in which they are sent, whatever each must wait for."""
    if pair.size == 1:
        return
    to, source = (pair.rank + 1) % pair.size, (pair.rank - 1) % pair.size
    sizes = [300_007, 1, 0, 7, 7, 300_007, 20_011, 1]

    def made(rank: int, place: int) -> torch.Tensor:
        return torch.full((sizes[place],), 100.0 * rank + place)

    for _ in range(5):
        works = [
            dist.isend(made(pair.rank, place), pair.ranks[to], group=pair.mpi)
            for place in range(len(sizes))
        ]
        for place, size in enumerate(sizes):
            given = torch.empty(size)
            dist.recv(given, pair.ranks[source], group=pair.mpi)
            same(given, made(source, place), str(place))
        for work in works:
            work.wait()


@case
def messages_from_any(pair: Pair) -> None:
    if pair.size == 1:
        return
    if pair.rank == 0:
        seen = set()
        for _ in range(pair.size - 1):
            given = torch.empty(1000, dtype=torch.int64)
            source = dist.recv(given, group=pair.mpi, tag=5)
            same(given, torch.full((1000,), source), "from any")
            seen.add(source)
        assert seen == set(pair.ranks[1:])
    else:
        own = torch.full((1000,), pair.ranks[pair.rank])
        dist.send(own, pair.ranks[0], group=pair.mpi, tag=5)


@case
def batches_of_messages(pair: Pair) -> None:
    if pair.size == 1:
        return
    given = [torch.empty(40_000) for _ in pair.ranks]
    own = values(pair.rank, (40_000,), torch.float32)
    others = [rank for rank in range(pair.size) if rank != pair.rank]
    ops = [dist.P2POp(dist.isend, own, pair.ranks[rank], pair.mpi) for rank in others]
    ops += [dist.P2POp(dist.irecv, given[rank], pair.ranks[rank], pair.mpi) for rank in others]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    for rank in others:
        same(given[rank], values(rank, (40_000,), torch.float32), str(rank))


@case
def barriers(pair: Pair) -> None:
    for _ in range(20):
        dist.barrier(group=pair.mpi)
    pair.mpi.monitored_barrier()


@case
def objects(pair: Pair) -> None:
    given: list[Any] = [None] * pair.size
    own = {"rank": pair.rank, "text": "x" * pair.rank * 1000}
    dist.all_gather_object(given, own, group=pair.mpi)
    wanted = [{"rank": rank, "text": "x" * rank * 1000} for rank in range(pair.size)]
    assert given == wanted
    box = [wanted[pair.rank], pair.rank]
    dist.broadcast_object_list(box, pair.ranks[-1], group=pair.mpi)
    assert box == [wanted[-1], pair.size - 1]
    out = [None]
    dist.scatter_object_list(out, wanted if pair.rank == 0 else None, pair.ranks[0], group=pair.mpi)
    assert out == [wanted[pair.rank]]
    gathered: list[Any] | None = [None] * pair.size if pair.rank == 0 else None
    dist.gather_object(own, gathered, pair.ranks[0], group=pair.mpi)
    assert gathered is None or gathered == wanted


@case
def futures(pair: Pair) -> None:
    parts = pair.every(lambda rank: values(rank, (90_000,), torch.float32))
    given = parts[pair.rank].clone()
    work = dist.all_reduce(given, group=pair.mpi, async_op=True)
    future = work.get_future().then(lambda done: done.value()[0] * 2)
    same(future.wait(), reduced(parts, dist.ReduceOp.SUM) * 2, "then")
    work.wait()
    assert work.is_completed()
    assert work.is_success()
    same(work.get_future().wait()[0], given, "late")


@case
def waiting_by_looking(pair: Pair) -> None:
    given = torch.ones(50_000)
    work = dist.all_reduce(given, group=pair.mpi, async_op=True)
    while not work.is_completed():
        pass
    same(given, torch.full_like(given, pair.size), "looked at")


@case
def inference_mode(pair: Pair) -> None:
    """Its tensors are written to in that mode alone, which is the caller's and ends before."""
    with torch.inference_mode():
        parts = pair.every(lambda rank: values(rank, (90_000,), torch.float32))
        total = reduced(parts, dist.ReduceOp.SUM)
        wide = torch.zeros(90_000, 2)
        wide[:, 0] = parts[pair.rank]
        given = [parts[pair.rank].clone(), wide[:, 0]]
        works = [dist.all_reduce(one, group=pair.mpi, async_op=True) for one in given]
    for work, one in zip(works, given, strict=True):
        work.wait()
        same(one, total, str(one.stride()))


@case
def wrong_arguments(pair: Pair) -> None:
    """Refused on the rank that gives them, before anything travels."""
    import pytest

    with pytest.raises(ValueError, match="BAND of Float"):
        dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND, group=pair.mpi)
    with pytest.raises(ValueError, match="AVG of Bool"):
        dist.all_reduce(torch.ones(3).bool(), dist.ReduceOp.AVG, group=pair.mpi)
    with pytest.raises(ValueError, match="Float8_e5m2 cannot be reduced"):
        dist.all_reduce(torch.ones(3).to(torch.float8_e5m2), group=pair.mpi)
    sparse = torch.ones(3).to_sparse()
    with pytest.raises(ValueError, match=r"layout Sparse .* use \.to_dense"):
        pair.mpi._get_backend(torch.device("cpu")).broadcast(sparse, 0)
    with pytest.raises(ValueError, match="MAX of a sparse tensor was asked for: SUM is allowed"):
        dist.all_reduce(sparse, dist.ReduceOp.MAX, group=pair.mpi)
    whole = torch.ones(pair.size + 1)
    splits = [1] + [0] * (pair.size - 1)
    with pytest.raises(ValueError, match="split sizes of the input make 1 rows, and it has"):
        pair.mpi.alltoall_base(torch.ones(1), whole, [], splits).wait()
    dist.barrier(group=pair.mpi)


@case
def compressed(pair: Pair) -> None:
    """The error is within its bound, and all ranks have the same bits."""
    import gear_mpi

    assert gear_mpi.get_compression(pair.mpi) == "none"
    for kind, unit in (("bf16", 2.0**-8), ("f16", 2.0**-11)):
        gear_mpi.set_compression(kind, pair.mpi)
        assert gear_mpi.get_compression(pair.mpi) == kind
        for size in (3, 40_011, 900_001):
            parts = [
                torch.randn(size, generator=torch.Generator().manual_seed(rank))
                for rank in range(pair.size)
            ]
            exact = torch.stack(parts).double().sum(0)
            magnitude = torch.stack(parts).double().abs().sum(0)
            # Rounding on the way, of the sum, and in float32; f16 has a least step, too.
            bound = unit * (magnitude + exact.abs()) * 1.01 + 1e-5
            given = parts[pair.rank].clone()
            dist.all_reduce(given, group=pair.mpi)
            assert ((given - exact).abs() <= bound).all(), (kind, size)
            if size > 3 and pair.size > 1:
                assert ((given - exact).abs() > unit / 8).any(), "nothing was rounded"
            bits = [torch.empty_like(given) for _ in pair.ranks]
            dist.all_gather(bits, given, group=pair.gloo)
            for other in bits:
                same(other, given, f"{kind} {size}")
            kept = parts[pair.rank].clone()
            dist.reduce(kept, pair.ranks[0], group=pair.mpi)
            if pair.rank == 0:
                assert ((kept - exact).abs() <= 2 * bound).all(), (kind, size)
            part = torch.empty(size)
            whole = torch.cat([parts[pair.rank]] * pair.size)
            dist.reduce_scatter_tensor(part, whole, group=pair.mpi)
            assert ((part - exact).abs() <= bound).all(), (kind, size)
        doubles = torch.full((40_000,), 1 / 3, dtype=torch.float64)
        dist.all_reduce(doubles, group=pair.mpi)
        torch.testing.assert_close(doubles, torch.full_like(doubles, pair.size / 3))
    gear_mpi.set_compression("none", pair.mpi)


@case
def routed(pair: Pair) -> None:
    """All by gloo: the same results; what gloo lacks is refused."""
    import pytest

    import gear_mpi

    everything = (all_gather_coalesced, gather, scatter, broadcast_by_gloo, objects, futures)
    everything += (sparse_by_gloo,)
    rules = [f"{name}=gloo" for name in OPERATIONS]
    gear_mpi.set_route(",".join(rules), pair.mpi)
    assert set(gear_mpi.get_route(pair.mpi).split(",")) == set(rules)
    parts = pair.every(lambda rank: values(rank, (777,), torch.float32))
    total = reduced(parts, dist.ReduceOp.SUM)
    for call in everything:
        call(pair)
    given = parts[pair.rank].clone()
    dist.reduce(given, pair.ranks[-1], group=pair.mpi)
    if pair.rank == pair.size - 1:
        same(given, total, "reduce")
    given = torch.empty_like(total)
    whole = torch.cat([parts[pair.rank]] * pair.size)
    dist.reduce_scatter_tensor(given, whole, group=pair.mpi)
    same(given, total, "reduce_scatter")
    coalesced = [parts[pair.rank].clone(), parts[pair.rank].clone()]
    pair.mpi.allreduce_coalesced(coalesced, dist.AllreduceCoalescedOptions()).wait()
    same(coalesced[1], total, "coalesced")
    all_to_all_of_random_splits(pair)
    dist.barrier(group=pair.mpi)
    for tensor, op, words in (
        (torch.ones(3, dtype=torch.int16), dist.ReduceOp.SUM, "Short goes by gloo, .* this dtype"),
        (torch.ones(3), dist.ReduceOp.AVG, "gloo has no AVG: route all_reduce by mpi"),
        (torch.ones(3), dist.ReduceOp.BAND, "gloo has no bitwise reductions of this dtype"),
    ):
        with pytest.raises(ValueError, match=words):
            dist.all_reduce(tensor, op, group=pair.mpi)
    gear_mpi.set_route("all_reduce>1K=gloo", pair.mpi)
    for size, refused in ((512, False), (513, True)):
        shorts = torch.ones(size, dtype=torch.int16)
        if refused:
            with pytest.raises(ValueError, match="Short goes by gloo"):
                dist.all_reduce(shorts, group=pair.mpi)
        else:
            dist.all_reduce(shorts, group=pair.mpi)
            assert (shorts == pair.size).all()
    gear_mpi.set_route("", pair.mpi)
    assert gear_mpi.get_route(pair.mpi) == ""
    averages(pair)


def sparse_by_gloo(pair: Pair) -> None:
    parts = [sparse_values(rank, torch.float32, [5, 4], 9) for rank in range(pair.size)]
    given = parts[pair.rank].clone()
    dist.all_reduce(given, group=pair.mpi)
    same(given.to_dense(), reduced([part.to_dense() for part in parts], dist.ReduceOp.SUM), "gloo")


def broadcast_by_gloo(pair: Pair) -> None:
    for root in range(pair.size):
        parts = pair.every(lambda rank: values(rank, (20_011,), torch.bfloat16))
        given = parts[pair.rank].clone()
        dist.broadcast(given, pair.ranks[root], group=pair.mpi)
        same(given, parts[root], f"{root}")


# What is played with tensors that go as those of a GPU do: every way of moving and of waiting.
STAGED = ["all_reduce_sparse", "averages", "premultiplied_sums", "all_reduce_coalesced", "reduce"]
STAGED += ["broadcast", "all_gather", "all_gather_uneven", "all_gather_coalesced", "gather"]
STAGED += ["scatter", "reduce_scatter_uneven", "reduce_scatter_coalesced", "all_to_all"]
STAGED += ["all_to_all_of_random_splits", "other_strides", "messages", "messages_of_one_tag"]
STAGED += ["messages_from_any", "batches_of_messages", "futures", "waiting_by_looking"]
STAGED += ["compressed", "inference_mode"]
# And those that GPUs of one node reduce themselves.
SHARED = ["all_reduce", "all_reduce_as_gloo", "averages", "premultiplied_sums", "other_strides"]
SHARED += ["all_reduce_coalesced", "futures", "waiting_by_looking", "compressed"]
SHARED += ["inference_mode"]


def of_random_groups(count: int) -> None:
    """`count` groups of random ranks, each of which exchanges random splits and adds random numbers
    up; the same groups and numbers on all ranks, as they come from one seed."""
    choice = random.Random(29)
    everyone = list(range(dist.get_world_size()))
    for _ in range(count):
        ranks = choice.sample(everyone, choice.randint(1, len(everyone)))
        mpi = dist.new_group(ranks, backend="gear_mpi")
        size = choice.choice([0, 1, 33, 5_000, 70_001])
        seed = choice.randrange(1000)
        splits = [[choice.randint(0, 300) for _ in ranks] for _ in ranks]
        if dist.get_rank() not in ranks:
            continue
        pair = Pair(mpi, None, tuple(sorted(ranks)))
        parts = pair.every(lambda rank, n=size, s=seed: values(rank, (n,), torch.int64, s))
        given = parts[pair.rank].clone()
        dist.all_reduce(given, group=mpi)
        same(given, reduced(parts, dist.ReduceOp.SUM), f"{ranks} {size}")
        whole = [values(r, (sum(splits[r]),), torch.float64, seed + 1) for r in range(pair.size)]
        wanted = torch.cat([whole[r].split(splits[r])[pair.rank] for r in range(pair.size)])
        taken = [splits[r][pair.rank] for r in range(pair.size)]
        given = torch.empty_like(wanted)
        dist.all_to_all_single(given, whole[pair.rank], taken, splits[pair.rank], group=mpi)
        same(given, wanted, f"{ranks} {splits}")
        dist.destroy_process_group(mpi)


def overlapping(pairs: list[Pair], count: int) -> None:
    """`count` operations of random kinds and sizes on several groups, all under way together, and
    waited for in another order on every rank."""
    shared = random.Random(3)  # what is called, in which order: the same on all ranks
    own = random.Random(dist.get_rank())
    under_way: list[tuple[Any, Callable[[], None]]] = []
    for number in range(count):
        pair = shared.choice(pairs)
        kind = shared.choice(["all_reduce", "broadcast", "all_gather", "all_to_all", "barrier"])
        size = shared.choice([1, 100, 5_000, 60_000])
        root = shared.randrange(1000)
        drain = shared.random() < 0.05
        if dist.get_rank() in pair.ranks:
            under_way.append(_start(pair, kind, size, root % pair.size, number))
        if drain or len(under_way) > 100:
            own.shuffle(under_way)
            for work, check in under_way:
                work.wait()
                check()
            under_way.clear()
    for work, check in under_way:
        work.wait()
        check()


def _start(
    pair: Pair, kind: str, size: int, root: int, number: int
) -> tuple[Any, Callable[[], None]]:
    def made(rank: int) -> torch.Tensor:
        return torch.full((size,), float(rank + number % 17))

    own, where = made(pair.rank), f"{number} {kind} {size}"
    if kind == "all_reduce":
        work = dist.all_reduce(own, group=pair.mpi, async_op=True)
        total = sum(rank + number % 17 for rank in range(pair.size))
        return work, lambda: same(own, torch.full((size,), float(total)), where)
    if kind == "broadcast":
        work = dist.broadcast(own, pair.ranks[root], group=pair.mpi, async_op=True)
        return work, lambda: same(own, made(root), where)
    wanted = torch.cat(pair.every(made))
    given = torch.empty(size * pair.size)
    if kind == "all_gather":
        work = dist.all_gather_into_tensor(given, own, group=pair.mpi, async_op=True)
        return work, lambda: same(given, wanted, where)
    if kind == "all_to_all":
        whole = own.repeat(pair.size)
        work = dist.all_to_all_single(given, whole, group=pair.mpi, async_op=True)
        return work, lambda: same(given, wanted, where)
    return dist.barrier(group=pair.mpi, async_op=True), lambda: None
