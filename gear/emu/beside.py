"""What NCCL takes on GPUs beside its time: memory, the host, others' speed and their links."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from gear.emu.calibrate import longest
from gear.emu.models.links import Beside

SIDE = 8192  # of the products' matrices
GATHERED = 256 << 20  # bytes of an all_gather beside them
REDUCED = 64 << 20  # bytes of an all_reduce of each of two groups
CALLS = 100  # of which the host's time is taken
ROUNDS = 5


def measure_beside() -> Beside | None:
    """None without GPUs. All ranks call this together, and have the same."""
    import torch
    import torch.distributed as dist

    if not torch.cuda.is_available():
        return None
    few = torch.zeros(1, device="cuda")
    before = _held()
    group: Any = dist.new_group(backend="nccl")
    for call in _each_operation(group):  # each may have NCCL make more of its own
        call()
    torch.cuda.synchronize()
    found = [max(0, _held() - before), _host_s(few), _product_lost(group), _two_groups(group)]
    held, host_s, lost, two = (longest(one) for one in found)
    dist.destroy_process_group(group)
    return Beside(int(held), 1e6 * host_s, lost, two)


def _held() -> int:
    """Bytes of the GPU that others than torch's allocator hold."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def _each_operation(group: Any) -> list[Callable[[], object]]:
    import torch
    import torch.distributed as dist

    part = torch.zeros(1 << 18, device="cuda")
    whole = part.repeat(dist.get_world_size())
    out = torch.empty_like(whole)
    return [
        lambda: dist.all_reduce(part, group=group),
        lambda: dist.all_gather_into_tensor(whole, part, group=group),
        lambda: dist.reduce_scatter_tensor(part, whole, group=group),
        lambda: dist.all_to_all_single(out, whole, group=group),
        lambda: dist.broadcast(part, 0, group=group),
    ]


def _host_s(few: Any) -> float:
    import torch
    import torch.distributed as dist

    torch.cuda.synchronize()
    began = time.perf_counter()
    works = [dist.all_reduce(few, async_op=True) for _ in range(CALLS)]
    took = time.perf_counter() - began
    for work in works:
        work.wait()
    torch.cuda.synchronize()
    return took / CALLS


def _product_lost(group: Any) -> float:
    """The products begin and end while all_gathers are under way."""
    import torch
    import torch.distributed as dist

    one = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    ranks = dist.get_world_size()
    part = torch.zeros(GATHERED // 2 // ranks, device="cuda", dtype=torch.bfloat16)
    whole = part.repeat(ranks)

    def products() -> None:
        for _ in range(10):
            torch.mm(one, one)

    def gathers(count: int) -> Any:
        for _ in range(count):
            work = dist.all_gather_into_tensor(whole, part, group=group, async_op=True)
        return work

    for call in (products, lambda: gathers(1).wait()):  # what a first one prepares
        _seconds(call)
    gather_s = longest(_seconds(lambda: gathers(10).wait()) / 10)
    lost = []
    for _ in range(ROUNDS):
        alone = _seconds(products)
        # As many on every rank: else one waits for a call that the others do not make.
        work = gathers(2 + int(2 * longest(alone) / gather_s))
        beside = _seconds(products, synchronized=False)
        work.wait()
        lost.append(1 - alone / beside)
    return max(0.0, median(lost))


def _two_groups(group: Any) -> float:
    import torch
    import torch.distributed as dist

    tensors = [torch.zeros(REDUCED // 4, device="cuda") for _ in range(2)]

    def reduce(groups: list[Any]) -> None:
        works = [
            dist.all_reduce(tensor, group=of, async_op=True)
            for _ in range(10)
            for tensor, of in zip(tensors, groups, strict=False)
        ]
        for work in works:
            work.wait()

    reduce([group, None])
    ratios = [
        _seconds(lambda: reduce([group, None])) / _seconds(lambda: reduce([group]))
        for _ in range(ROUNDS)
    ]
    return median(ratios)


def _seconds(call: Callable[[], object], *, synchronized: bool = True) -> float:
    """Of the current stream, by its events; `synchronized`: all ranks begin together, with nothing
    under way."""
    import torch
    import torch.distributed as dist

    if synchronized:
        dist.barrier()
        torch.cuda.synchronize()
    began, ended = (
        torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        for _ in range(2)
    )
    began.record()
    call()
    ended.record()
    ended.synchronize()
    return float(began.elapsed_time(ended)) / 1e3
