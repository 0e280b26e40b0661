"""What torch.distributed's operations take here, among the ranks that a launcher has started."""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

from gear.emu.launched import LOCAL, started
from gear.emu.models.curve import Point
from gear.emu.models.links import Measured
from gear.emu.models.shape import Shape
from gear.errors import InvalidArgument

if TYPE_CHECKING:
    import torch

SMALLEST = 1 << 10
LEAST_PART = 256  # bytes of a rank, of which it has whole numbers of 4 alone
ROUNDS = 3  # over all sizes, minutes apart on a large machine: what drifts shows in intervals
ROUND_S = 0.03  # of one size in one round, and 3 calls at least
MOST_CALLS = 200
MOST_ON_GPU = 40  # which a stream takes before it has begun: more, and the host would wait for it


@contextmanager
def connected() -> Iterator[Shape]:
    """The ranks, by nccl where they have GPUs and by gloo where they have none.

    Raises:
        InvalidArgument: for a process that no launcher has started beside others, and hosts that
            have different numbers of them.
    """
    import torch
    import torch.distributed as dist

    launch = started(os.environ)
    if launch.size < 2:
        raise InvalidArgument(
            "[emu] calibrate measures what ranks send to each other: start two or more, as torchrun"
            " --nproc-per-node 2 --no-python gear emu calibrate --out links.json, or under srun;"
            " or give logs of nccl-tests by --from"
        )
    met = {"RANK": str(launch.rank), "WORLD_SIZE": str(launch.size)}
    if launch.address:
        met |= {"MASTER_ADDR": launch.address, "MASTER_PORT": str(launch.port)}
    os.environ |= met
    if torch.cuda.is_available():
        local = (os.environ[name] for name in LOCAL["LOCAL_RANK"] if os.environ.get(name))
        torch.cuda.set_device(int(next(local, launch.rank)) % torch.cuda.device_count())
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield _shape(launch.size)
    finally:
        dist.destroy_process_group()


def _shape(ranks: int) -> Shape:
    import torch.distributed as dist

    hosts: list[Any] = [None] * ranks
    dist.all_gather_object(hosts, os.environ.get("NCCL_HOSTID") or socket.gethostname())
    counts = Counter(hosts)
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{host} {count}" for host, count in counts.items())
        raise InvalidArgument(
            f"[emu] calibrate: hosts with different numbers of ranks, {told}: start as many on each"
        )
    return Shape(ranks // len(counts), len(counts))


def measure(
    shape: Shape, largest: int, told: Callable[[str], None] = lambda _: None
) -> tuple[Measured, ...]:
    """What six operations take, of 1 KiB to `largest` bytes, two sizes each factor of two, in three
    rounds.

    Of more than four ranks it begins at 256 bytes a rank. A call takes what it took on the rank
    where that was longest; the rounds' median is the point, their least and largest its interval.
    All ranks call this together, and have the same.

    Args:
        told: is called with a line for each operation of a round.
    """
    import torch.distributed as dist

    smallest = max(SMALLEST, 1 << (LEAST_PART * shape.ranks - 1).bit_length())
    # Halfway too: NCCL changes its protocol within a factor of two.
    halves = [smallest * half << power for power in range(48) for half in (2, 3)]
    sizes = [half // 2 for half in halves if half // 2 <= largest]
    if not sizes:
        raise InvalidArgument(
            f"[emu] calibrate: {largest} bytes of {shape.ranks} ranks at most: {smallest} or more"
            " are allowed (--largest)"
        )
    rounds: dict[tuple[str, int], list[float]] = {}
    for number in range(ROUNDS):
        for operation, prepare in OPERATIONS.items():
            told(f"round {number + 1} of {ROUNDS}: {operation}")
            for size in sizes:
                seconds = time_call(prepare(size, dist.get_world_size()))
                rounds.setdefault((operation, size), []).append(seconds)
    source = f"gear emu calibrate: {dist.get_backend()} on {socket.gethostname()}"
    return tuple(
        Measured(operation, shape, point)
        for operation in OPERATIONS
        for point in _points(operation, rounds, source)
    )


def _points(
    operation: str, rounds: Mapping[tuple[str, int], list[float]], source: str
) -> Iterator[Point]:
    for (name, size), found in rounds.items():
        if name == operation:
            yield Point(
                size,
                median(found),
                low=min(found),
                high=max(found),
                basis="measured",
                source=source,
            )


def time_call(call: Callable[[], object]) -> float:
    """Seconds of a call, among several that follow each other, on the slowest rank: of a GPU by its
    own events, without what the host takes for a call. All ranks call this together."""
    once = longest(_timed(call, 1))  # and whatever a first call prepares
    once = longest(_timed(call, 1))
    most = MOST_ON_GPU if _device() == "cuda" else MOST_CALLS
    calls = max(3, min(most, int(ROUND_S / max(once, 1e-6))))
    return longest(_timed(call, calls))


def _timed(call: Callable[[], object], calls: int) -> float:
    import torch
    import torch.distributed as dist

    dist.barrier()
    _synchronize()
    if torch.cuda.is_available():
        return _timed_on_gpu(call, calls)
    began = time.perf_counter()
    for _ in range(calls):
        call()
    _synchronize()
    return (time.perf_counter() - began) / calls


def _timed_on_gpu(call: Callable[[], object], calls: int) -> float:
    """The first one begins when all have been given to the stream."""
    import torch

    def event() -> Any:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    began, ended = event(), event()
    for gate_s in (calls * 200e-6 + 2e-3, calls * 1e-3 + 0.02):
        torch.cuda._sleep(int(gate_s * 2e9))  # type: ignore[no-untyped-call]  # cycles
        began.record()
        for _ in range(calls):
            call()
        is_behind = began.query()
        ended.record()
        _synchronize()
        if not longest(float(is_behind)):  # of all ranks: they make as many calls
            break
    else:
        warnings.warn(
            f"[emu] calibrate: the host takes more than {gate_s / calls * 1e3:.1f} ms for a call:"
            " what is measured is the host",
            stacklevel=2,
        )
    return float(began.elapsed_time(ended)) / 1e3 / calls


def longest(seconds: float) -> float:
    """Of all ranks, which call this together."""
    import torch
    import torch.distributed as dist

    found = torch.tensor([seconds], dtype=torch.float64, device=_device())
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return float(found.item())


def _synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _whole(size: int) -> torch.Tensor:
    """float32 of so many bytes."""
    import torch

    return torch.zeros(size // 4, device=_device())


def _part(size: int, ranks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What all ranks have, and a rank's part of it: up to 2 % less where ranks do not divide it."""
    part = _whole(size // ranks // 4 * 4)
    return part.repeat(ranks), part


def _all_reduce(size: int, ranks: int) -> Callable[[], object]:
    import torch.distributed as dist

    whole = _whole(size)
    return lambda: dist.all_reduce(whole)


def _all_gather(size: int, ranks: int) -> Callable[[], object]:
    import torch.distributed as dist

    whole, part = _part(size, ranks)
    return lambda: dist.all_gather_into_tensor(whole, part)


def _reduce_scatter(size: int, ranks: int) -> Callable[[], object]:
    import torch.distributed as dist

    whole, part = _part(size, ranks)
    return lambda: dist.reduce_scatter_tensor(part, whole)


def _all_to_all(size: int, ranks: int) -> Callable[[], object]:
    import torch
    import torch.distributed as dist

    whole, _ = _part(size, ranks)
    out = torch.empty_like(whole)
    return lambda: dist.all_to_all_single(out, whole)


def _broadcast(size: int, ranks: int) -> Callable[[], object]:
    import torch.distributed as dist

    whole = _whole(size)
    return lambda: dist.broadcast(whole, 0)


def _send(size: int, ranks: int) -> Callable[[], object]:
    """From the first rank to the last, which is of another node where there are several."""
    import torch.distributed as dist

    whole, own = _whole(size), dist.get_rank()
    if own == 0:
        return lambda: dist.send(whole, ranks - 1)
    return (lambda: dist.recv(whole, 0)) if own == ranks - 1 else lambda: None


OPERATIONS: Mapping[str, Callable[[int, int], Callable[[], object]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "send": _send,
}
