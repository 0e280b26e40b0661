"""One rank of gear_mpi with tensors of a GPU: started by process_group.sh, by mpirun.

Every collective is played on tensors of the GPU and, by gloo, on the same ones of the host: what
comes out must be equal. Prints a line a check, and what all_reduce takes beside the copies alone.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

os.environ["GEAR_MPI_CUDA"] = "staged"
import gear_mpi
from gear_mpi.backend import Options
from gear_mpi.groups import backend_of

SEGMENT = 1 << 20
# Elements: none, one, odd; the small path; more than one piece a part; many pieces.
SIZES = [0, 1, 7, 4_001, 300_007, 3_000_011]
DTYPES = [torch.float32, torch.int64, torch.bfloat16, torch.uint8, torch.bool]
Group = Any


def values(shape: Any, dtype: torch.dtype, rank: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    low = 0 if dtype in (torch.uint8, torch.bool) else -3
    return torch.randint(low, 4, shape, generator=generator).to(dtype)


def collectives(
    group: Group, device: torch.device, size: int, dtype: torch.dtype
) -> dict[str, list[torch.Tensor]]:
    """What each collective leaves on this rank."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)

    def own(shape: Any, seed: int = 0) -> torch.Tensor:
        return values(shape, dtype, rank, seed).to(device)

    def blank(shape: Any) -> torch.Tensor:
        return torch.full(shape, 1, dtype=dtype, device=device)

    left: dict[str, list[torch.Tensor]] = {}
    for root in range(ranks):
        one = own((size,))
        dist.broadcast(one, root, group=group)
        many = [blank((size,)) for _ in range(ranks)]
        dist.gather(own((size,)), many if rank == root else None, root, group=group)
        taken = blank((size,))
        given = [own((size,), seed) for seed in range(ranks)]
        dist.scatter(taken, given if rank == root else None, root, group=group)
        left[f"broadcast, gather, scatter {root}"] = [one, taken, *(many if rank == root else [])]
        if dtype != torch.bool:
            one = own((size,))
            dist.reduce(one, root, group=group)
            left[f"reduce {root}"] = [one] if rank == root else []
    if dtype != torch.bool:
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
            one = own((size,))
            dist.all_reduce(one, op, group=group)
            taken = blank((size,))
            dist.reduce_scatter(taken, [own((size,), s) for s in range(ranks)], op, group=group)
            flat = blank((size,))
            dist.reduce_scatter_tensor(flat, own((ranks * size,)), op, group=group)
            left[f"all_reduce, reduce_scatter {op}"] = [one, taken, flat]
    many = [blank((size,)) for _ in range(ranks)]
    dist.all_gather(many, own((size,)), group=group)
    flat = blank((ranks * size,))
    dist.all_gather_into_tensor(flat, own((size,)), group=group)
    left["all_gather"] = [*many, flat]
    whole = own((ranks * size,))
    flat = blank((ranks * size,))
    dist.all_to_all_single(flat, whole, group=group)
    rows = [(3 * r + 5 * s) % 4 * size // 4 for r in range(ranks) for s in range(ranks)]
    to = rows[rank * ranks : (rank + 1) * ranks]
    of = rows[rank::ranks]
    uneven = blank((sum(of), 2))
    dist.all_to_all_single(uneven, own((sum(to), 2)), of, to, group=group)
    left["all_to_all"] = [flat, uneven]
    before, after = (rank - 1) % ranks, (rank + 1) % ranks
    taken = blank((size,))
    sent = dist.isend(own((size,)), after, group=group, tag=3)
    dist.recv(taken, before, group=group, tag=3)
    assert sent is not None
    sent.wait()
    left["send and recv"] = [taken]
    dist.barrier(group=group)
    return left


def as_gloo(group: Group, gloo: Group, device: torch.device) -> None:
    for dtype in DTYPES:
        for size in SIZES if dtype == torch.float32 else SIZES[:5]:
            ours = collectives(group, device, size, dtype)
            theirs = collectives(gloo, torch.device("cpu"), size, dtype)
            for name, tensors in theirs.items():
                assert len(ours[name]) == len(tensors)
                for i, (one, other) in enumerate(zip(ours[name], tensors, strict=True)):
                    assert one.device == device
                    assert torch.equal(one.cpu(), other), f"{name} {dtype} {size}, tensor {i}"


def made(way: str, segment: int) -> Group:
    """A group with tensors of GPUs in memory of the node ("staged"), or in messages."""
    os.environ["GEAR_MPI_CUDA"] = way
    group = dist.new_group(backend="gear_mpi", pg_options=Options(segment_bytes=segment))
    os.environ["GEAR_MPI_CUDA"] = "staged"
    assert backend_of(group).shares_memory == (way == "staged"), "memory of the node"
    return group


def reductions(group: Group, device: torch.device) -> None:
    """Bit for bit those of the host, where the order of two ranks does not matter."""
    Op = dist.ReduceOp
    rank, size = dist.get_rank(group), 1_100_003
    arithmetic = [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, Op.AVG]
    bitwise = [Op.BAND, Op.BOR, Op.BXOR]
    kinds: list[tuple[torch.dtype, Any]] = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        kinds += [(dtype, op) for op in arithmetic]
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        kinds += [(dtype, op) for op in arithmetic + bitwise]
    kinds += [(torch.complex64, Op.SUM), (torch.complex128, Op.AVG)]
    kinds += [(torch.bool, op) for op in [*arithmetic[:4], *bitwise]]
    for dtype, op in kinds:
        generator = torch.Generator().manual_seed(rank)
        if dtype.is_floating_point or dtype.is_complex:
            given = torch.randn(size, generator=generator).to(dtype)
            given[rank] = float("nan")
        else:
            given = torch.randint(0, 256, (size,), generator=generator).to(dtype)
        on_gpu = given.to(device)
        dist.all_reduce(given, op, group=group)
        dist.all_reduce(on_gpu, op, group=group)
        if dist.get_world_size(group) == 2:
            assert torch.equal(
                torch.view_as_real(given).nan_to_num() if dtype.is_complex else given.nan_to_num(),
                torch.view_as_real(on_gpu.cpu()).nan_to_num()
                if dtype.is_complex
                else on_gpu.cpu().nan_to_num(),
            ), f"{op} of {dtype}"
        assert torch.equal(given.isnan(), on_gpu.isnan().cpu()), f"NaN, {op} of {dtype}"


def total(ranks: int, size: int, seed: int) -> torch.Tensor:
    return sum(values((size,), torch.float32, r, seed) for r in range(ranks))  # type: ignore[return-value]


def several_streams(group: Group, device: torch.device) -> None:
    """What streams have been given comes first, and what they are given next finds the results;
    the host never waits for the GPU in between."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    size = 1_500_001
    streams = [torch.cuda.Stream(device) for _ in range(4)]
    made = [values((size,), torch.float32, rank, seed).to(device) for seed in range(12)]
    torch.cuda.synchronize(device)
    results: list[torch.Tensor] = []
    works: list[Any] = []
    for seed, tensor in enumerate(made):
        with torch.cuda.stream(streams[seed % 4]):
            late = torch.zeros_like(tensor)
            torch.cuda._sleep(20_000_000)
            late.add_(tensor)  # after the delay: whoever reads too early reads zeros
            works.append(dist.all_reduce(late, group=group, async_op=True))
            results.append(late)
    for seed in (3, 0, 1, 2, 7, 6, 5, 4, 11, 8, 10, 9):
        with torch.cuda.stream(streams[(seed + 1) % 4]):
            works[seed].wait()
            results[seed] = results[seed] * 2  # by another stream than the one that began it
    torch.cuda.synchronize(device)
    for seed, result in enumerate(results):
        assert torch.equal(result.cpu(), total(ranks, size, seed) * 2), f"operation {seed}"


def memory_that_is_freed(group: Group, device: torch.device) -> None:
    """Nobody keeps the tensors while they are under way, and their memory is asked for again."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    for seed in range(20):
        tensor = values((700_001,), torch.float32, rank, seed).to(device)
        work = dist.all_reduce(tensor, group=group, async_op=True)
        if seed % 2 == 0:
            del tensor
            torch.full((700_001,), -1.0, device=device)
            work.wait()
        else:
            kept = tensor[:1000]
            del tensor
            work.wait()
            assert torch.equal(kept.cpu(), total(ranks, 700_001, seed)[:1000])


def beside_a_capture(group: Group, device: torch.device) -> None:
    """A program captures a CUDA graph, which forbids all threads to ask for events and to take
    memory, while operations go on: they end within the capture, and both are whole."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    size = 1_500_001
    tensors = [values((size,), torch.float32, rank, seed).to(device) for seed in range(6)]
    target = torch.zeros(4, device=device)
    target += 0  # loads the kernel
    torch.cuda.synchronize(device)
    with torch.cuda.stream(torch.cuda.Stream(device)):
        torch.cuda._sleep(500_000_000)  # the operations begin when the capture has begun
        works: list[Any] = [dist.all_reduce(one, group=group, async_op=True) for one in tensors]
        futures = [work.get_future() for work in works]
    graph = torch.cuda.CUDAGraph()
    limit = time.monotonic() + 60
    with torch.cuda.stream(torch.cuda.Stream(device)):
        graph.capture_begin(capture_error_mode="global")
        target += 1
        while not all(future.done() for future in futures) and time.monotonic() < limit:
            time.sleep(0.001)
        target += 1
        graph.capture_end()
    for seed, (work, tensor) in enumerate(zip(works, tensors, strict=True)):
        work.wait()
        assert torch.equal(tensor.cpu(), total(ranks, size, seed)), f"operation {seed}"
    graph.replay()
    torch.cuda.synchronize(device)
    assert target.tolist() == [2, 2, 2, 2]


def other_forms(group: Group, device: torch.device) -> None:
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    wide = torch.zeros(700, 800, device=device)
    own = values((700, 400), torch.float32, rank)
    sums = sum(values((700, 400), torch.float32, r) for r in range(ranks))
    wide[:, ::2] = own.to(device)
    dist.all_reduce(wide[:, ::2], group=group)
    assert torch.equal(wide[:, ::2].cpu(), sums)
    assert not wide[:, 1::2].any()
    # In place, as FSDP does.
    flat = torch.zeros(ranks, 500_001, device=device)
    flat[rank] = rank + 1
    dist.all_gather_into_tensor(flat, flat[rank], group=group)
    for r in range(ranks):
        assert (flat[r] == r + 1).all()
    average = torch.full((400_001,), float(rank), device=device)
    dist.all_reduce(average, dist.ReduceOp.AVG, group=group)
    assert (average == (ranks - 1) / 2).all()
    factor = dist._make_nccl_premul_sum(0.5)
    scaled = torch.ones(500_001, device=device)
    dist.all_reduce(scaled, factor, group=group)
    assert (scaled == ranks / 2).all()
    pair = [torch.ones(3, device=device), torch.ones(400_001, device=device)]
    group.allreduce_coalesced(pair, dist.AllreduceCoalescedOptions()).wait()
    assert all((one == ranks).all() for one in pair)
    for size in (3, 900_001):
        one = torch.ones(size, device=device)
        future = dist.all_reduce(one, group=group, async_op=True).get_future()
        doubled = future.then(lambda done: done.value()[0] * 2).wait()
        assert (doubled == 2 * ranks).all()
    work = dist.all_reduce(one, group=group, async_op=True)
    while not work.is_completed():
        pass
    assert (one == ranks * ranks).all()
    gear_mpi.set_compression("bf16", group)
    near = torch.full((900_001,), 1 / 3, device=device)
    dist.all_reduce(near, group=group)
    assert ((near - ranks / 3).abs() < 0.01).all()
    gear_mpi.set_compression("none", group)
    said = [None] * ranks
    dist.all_gather_object(said, {"rank": rank}, group=group)
    assert said == [{"rank": r} for r in range(ranks)]


def data_parallel(group: Group, device: torch.device) -> None:
    rank = dist.get_rank(group)
    losses = []
    for where, by in ((device, group), (torch.device("cpu"), dist.new_group(backend="gloo"))):
        torch.manual_seed(1)
        model = torch.nn.Sequential(
            torch.nn.Linear(64, 300), torch.nn.ReLU(), torch.nn.Linear(300, 1)
        ).to(where)
        ddp = torch.nn.parallel.DistributedDataParallel(model, process_group=by)
        optimiser = torch.optim.SGD(ddp.parameters(), lr=0.05)
        found = []
        for step in range(10):
            data = torch.randn(32, 64, generator=torch.Generator().manual_seed(step * 10 + rank))
            optimiser.zero_grad()
            loss = (ddp(data.to(where)) - data.sum(1, keepdim=True).to(where)).square().mean()
            loss.backward()
            optimiser.step()
            found.append(loss.item())
        losses.append(found)
    assert max(abs(a - b) / abs(b) for a, b in zip(*losses, strict=True)) < 1e-3, losses


def words(call: Callable[[], Any]) -> str:
    try:
        call()
    except (ValueError, RuntimeError) as error:
        return str(error).splitlines()[0]
    raise AssertionError("nothing was refused")


def refusals(group: Group, device: torch.device) -> None:
    said = [
        words(lambda: dist.all_reduce(torch.ones(3, device=device).to_sparse(), group=group)),
    ]
    gear_mpi.set_route("all_reduce=gloo", group)
    said.append(words(lambda: dist.all_reduce(torch.ones(3, device=device), group=group)))
    gear_mpi.set_route("", group)
    del os.environ["GEAR_MPI_CUDA"]
    plain = dist.new_group(backend="gear_mpi")
    os.environ["GEAR_MPI_CUDA"] = "staged"
    if dist.is_nccl_available():
        said.append(words(lambda: dist.all_reduce(torch.ones(3, device=device), group=plain)))
        assert "GEAR_MPI_CUDA=staged" in said[-1]
    if dist.get_rank() == 0:
        for one in said:
            print(f"    {one}", flush=True)


def nobody_comes(group: Group, device: torch.device) -> None:
    """A rank that is missing is named with tensors of a GPU, too, and so are other sizes."""
    uneven = dist.new_group(backend="gear_mpi", timeout=timedelta(seconds=5))
    size = 1_000_000 + dist.get_rank()
    said = words(lambda: dist.all_reduce(torch.ones(size, device=device), group=uneven))
    assert "called all_reduce of 1000000 Float by SUM" in said, said
    limited = dist.new_group(backend="gear_mpi", timeout=timedelta(seconds=2))
    if dist.get_rank() == 0:
        said = words(lambda: dist.all_reduce(torch.ones(3_000_000, device=device), group=limited))
        assert "did not come to all_reduce" in said, said
    torch.cuda.synchronize(device)


def best_ms(call: Callable[[], None], group: Group, device: torch.device) -> float:
    times = []
    for _ in range(12):
        torch.cuda.synchronize(device)
        dist.barrier(group=group)
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize(device)
        times.append(time.perf_counter() - begin)
    return sorted(times[2:])[len(times[2:]) // 2] * 1e3


def bound_ms(count: int, group: Group, device: torch.device) -> float:
    """Copies of `count` float32 in and out at once, by all ranks together."""
    on_gpu = [torch.ones(count, device=device) for _ in range(2)]
    host = [torch.ones(count).pin_memory() for _ in range(2)]
    streams = [torch.cuda.Stream(device) for _ in range(2)]

    def copy_both() -> None:
        with torch.cuda.stream(streams[0]):
            host[0].copy_(on_gpu[0], non_blocking=True)
        with torch.cuda.stream(streams[1]):
            on_gpu[1].copy_(host[1], non_blocking=True)

    return best_ms(copy_both, group, device)


def all_reduce_ms(tensor: torch.Tensor, group: Group, device: torch.device) -> float:
    return best_ms(lambda: dist.all_reduce(tensor, group=group), group, device)


def timing(group: Group, device: torch.device) -> None:
    groups = {
        f"{way}, pieces of {segment >> 10} KiB": made(way, segment)
        for way in ("staged", "messages")
        for segment in (512 << 10, 1 << 20, 2 << 20)
    }
    for kib in (64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10):
        bound = bound_ms(kib << 8, group, device)
        on_gpu = torch.ones(kib << 8, device=device)
        lines = []
        for name, one in groups.items():
            taken = all_reduce_ms(on_gpu, one, device)
            lines.append(f"{name}: {taken:.3f} ms, {bound / taken:.2f} of the bound")
        alone = all_reduce_ms(torch.ones(kib << 8).pin_memory(), group, device)
        lines.append(f"of a tensor of the host: {alone:.3f} ms")
        if dist.get_rank() == 0:
            print(
                f"all_reduce of {kib} KiB on {dist.get_world_size()} ranks (medians of 10); "
                f"pinned copies in and out at once, by all ranks: {bound:.3f} ms",
                *lines,
                sep="\n    ",
                flush=True,
            )


def main() -> None:
    torch.set_num_threads(1)
    gear_mpi.register()  # process_group.sh copies the package, without its entry point
    dist.init_process_group("gear_mpi", timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    group = made("staged", SEGMENT)
    small = made("staged", 64 << 10)
    messages = made("messages", SEGMENT)
    gloo = dist.new_group(backend="gloo")
    checks: dict[str, Callable[[], None]] = {
        "every collective": lambda: as_gloo(group, gloo, device),
        "every collective, in pieces of 64 KiB": lambda: as_gloo(small, gloo, device),
        "every collective, by messages": lambda: as_gloo(messages, gloo, device),
        "every reduction": lambda: reductions(small, device),
        "several streams": lambda: several_streams(small, device),
        "several streams, by messages": lambda: several_streams(messages, device),
        "memory that is freed": lambda: memory_that_is_freed(small, device),
        "beside a capture": lambda: beside_a_capture(made("staged", 64 << 10), device),
        "beside a capture, by messages": lambda: beside_a_capture(messages, device),
        "other forms": lambda: other_forms(group, device),
        "data parallel": lambda: data_parallel(group, device),
        "refusals": lambda: refusals(group, device),
        "timing": lambda: timing(group, device),
        "nobody comes": lambda: nobody_comes(group, device),
    }
    failed = 0
    for name, check in checks.items():
        begin = time.perf_counter()
        try:
            check()
            verdict = "ok"
        except Exception:  # noqa: BLE001  # the rest says more
            verdict = "FAILED\n" + traceback.format_exc()
            failed = 1
        if rank == 0 or verdict != "ok":
            print(
                f"rank {rank}: {name}: {verdict}, {time.perf_counter() - begin:.1f} s", flush=True
            )
        if verdict != "ok":
            break  # the ranks are not at the same place any more
        dist.barrier(group=gloo)
    if rank == 0 and not failed:
        print(f"process group on {torch.cuda.get_device_name(device)}: all is as gloo", flush=True)
    if not failed:
        Path(f"passed.{rank}").touch()
    sys.stdout.flush()
    os._exit(failed)  # a group has failed on purpose: MPI is not finalised, which mpirun minds


if __name__ == "__main__":
    main()
