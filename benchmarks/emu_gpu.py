#!/usr/bin/env python3
"""What a GPU lets an emulated operation do: a kernel that takes NCCL's place until a time.

    python -m torch.distributed.run --nproc-per-node=2 benchmarks/emu_gpu.py --json out.json

clock: the step of %globaltimer, which such a kernel looks at. late: how long after its time the
stream goes on, of holds of 5 us to 50 ms: alone, two streams at once, in a CUDA graph; and where
two share a link by a counter in the GPU's memory, beside the closed form. footprint: grid, block,
shared memory and registers of NCCL's kernels by torch's profiler. gemm: what matrix products lose
beside NCCL's all_gather, beside a hold of the same footprint, one that also moves the bytes
through the GPU's memory, one of a single block, and a stream that waits on a value. host: us that
a call takes of the host. memory: what NCCL itself takes, which torch's allocator does not see.

With one process, what needs NCCL between two GPUs is left out, which is said.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
import torch.distributed as dist

KERNELS = r"""
__device__ unsigned long long now() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

extern "C" __global__ void ticks(unsigned long long* out, int count) {
  unsigned long long last = now();
  for (int i = 0; i < count;) {
    const unsigned long long t = now();
    if (t != last) { out[i++] = t - last; last = t; }
  }
}

extern "C" __global__ void mark(unsigned long long* at) { *at = now(); }

// Leaves when the clock is for_ns after *start. All blocks of a footprint wait alike.
extern "C" __global__ void hold(const unsigned long long* start, int for_ns, int pause_ns) {
  if (threadIdx.x == 0) {
    const unsigned long long end = *start + for_ns;
    while (now() < end) {
      if (pause_ns > 0) __nanosleep(pause_ns);
    }
  }
  __syncthreads();
}

// Takes what went by, divided by the kernels in flight on its link, off what it has to go.
extern "C" __global__ void share(unsigned int* in_flight, int for_ns, unsigned int* done) {
  if (threadIdx.x == 0) {
    if (blockIdx.x == 0) {
      atomicAdd(in_flight, 1u);
      double left = for_ns;
      unsigned long long last = now();
      while (left > 0) {
        const unsigned int sharers = *(volatile unsigned int*)in_flight;
        const unsigned long long t = now();
        left -= double(t - last) / sharers;
        last = t;
      }
      atomicSub(in_flight, 1u);
      atomicExch(done, 1u);
    } else {
      while (*(volatile unsigned int*)done == 0) __nanosleep(100);
    }
  }
  __syncthreads();
}

// As hold, and carries its share of `kib` KiB from one place to another at an even rate.
extern "C" __global__ void moving(const unsigned long long* start, int for_ns, const uint4* from,
                                  uint4* to, int kib) {
  const unsigned long long begin = *start;
  const long long all = (long long)kib * 64 / gridDim.x;  // 16 bytes each, of this block
  const uint4* mine = from + all * blockIdx.x;
  uint4* there = to + all * blockIdx.x;
  long long at = 0;
  while (true) {
    const long long gone = (long long)(now() - begin);
    if (gone >= for_ns) break;
    const long long due = (long long)((double)all * gone / for_ns);
    if (at >= due) { __nanosleep(50); continue; }
    const long long until = at + 4 * blockDim.x < all ? at + 4 * blockDim.x : all;
    for (long long i = at + threadIdx.x; i < until; i += blockDim.x) there[i] = mine[i];
    at = until;
  }
}
"""
HOLDS_US = (5, 10, 20, 50, 200, 1000, 5000, 50000)
MIB = 1 << 20


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument(
        "--gemm", type=int, default=8192, metavar="N", help="N x N x N: %(default)s"
    )
    return parser.parse_args()


class Kernels:
    """The kernels above, compiled by the NVRTC of torch's wheel."""

    def __init__(self) -> None:
        began = time.perf_counter()
        names = ("ticks", "mark", "hold", "share", "moving")
        for name in names:
            setattr(self, name, torch.cuda._compile_kernel(KERNELS, name))
        self.compiled_s = (time.perf_counter() - began) / len(names)

    def __getattr__(self, name: str) -> Any:  # for mypy: what __init__ has set is found before
        raise AttributeError(name)


def cells(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int64, device="cuda")


def spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    cuts = quantiles(ordered, n=100)
    return {"p50": median(ordered), "p95": cuts[94], "max": ordered[-1]}


def clock(kernels: Kernels) -> dict[str, Any]:
    steps = cells(2000)
    kernels.ticks(args=[steps, 2000])
    counted = torch.bincount(steps[100:].clamp(max=100_000)).cpu()
    common = counted.argmax().item()
    return {
        "step_ns": common,
        "of_1900": int(counted[common]),
        "smallest_ns": int(counted.nonzero()[0]),
    }


def late(kernels: Kernels) -> dict[str, Any]:
    """us from the first mark to the second beyond the hold, and the same with no hold between."""
    found: dict[str, Any] = {}
    streams = [torch.cuda.Stream() for _ in range(2)]

    def chain(stream: torch.cuda.Stream, at: torch.Tensor, hold_us: float, pause_ns: int) -> None:
        kernels.mark(args=[at[:1]], stream=stream)
        if hold_us:
            kernels.hold(args=[at[:1], int(hold_us * 1000), pause_ns], stream=stream)
        kernels.mark(args=[at[1:]], stream=stream)

    def beyond(at: list[torch.Tensor], hold_us: float) -> list[float]:
        torch.cuda.synchronize()
        return [(pair[1] - pair[0]) / 1000 - hold_us for pair in torch.stack(at).tolist()]

    for pause_ns in (0, 50, 200):
        for hold_us in (0, *HOLDS_US):
            count = 300 if hold_us < 2000 else 40
            at = [cells(2) for _ in range(count)]
            torch.cuda.synchronize()
            for one in at:
                chain(streams[0], one, hold_us, pause_ns)
            found[f"alone, pause {pause_ns} ns, {hold_us} us"] = spread(beyond(at, hold_us))
    for hold_us in HOLDS_US[:6]:
        at = [cells(2) for _ in range(400)]
        torch.cuda.synchronize()
        for i, one in enumerate(at):
            chain(streams[i % 2], one, hold_us, 50)
        found[f"two at once, {hold_us} us"] = spread(beyond(at, hold_us))
    for hold_us in (0, *HOLDS_US[:6]):
        at = [cells(2) for _ in range(100)]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for one in at:
                chain(torch.cuda.current_stream(), one, hold_us, 50)
        graph.replay()
        found[f"in a graph, {hold_us} us"] = spread(beyond(at, hold_us))
    return found


def shared(kernels: Kernels) -> dict[str, Any]:
    """us beside the closed form, of two holds on one link, the second of which begins later."""
    found = {}
    streams = [torch.cuda.Stream() for _ in range(2)]
    for long_us, lag_us, blocks in ((1000, 300, 1), (1000, 300, 16), (100, 30, 16)):
        off = [], []
        for _ in range(60):
            in_flight = torch.zeros(1, dtype=torch.int32, device="cuda")
            done = torch.zeros(2, dtype=torch.int32, device="cuda")
            at = cells(5)
            torch.cuda.synchronize()
            for i, stream in enumerate(streams):
                kernels.mark(args=[at[2 * i :]], stream=stream)
                if i:
                    kernels.hold(args=[at[:1], lag_us * 1000, 0], stream=stream)
                    kernels.mark(args=[at[4:]], stream=stream)
                form = {"grid": (blocks, 1, 1), "block": (256, 1, 1), "stream": stream}
                kernels.share(args=[in_flight, long_us * 1000, done[i:]], **form)
                kernels.mark(args=[at[2 * i + 1 :]], stream=stream)
            torch.cuda.synchronize()
            a0, a1, _, b1, b0 = (value / 1000 for value in at.tolist())
            lag = b0 - a0
            off[0].append(a1 - a0 - (lag + 2 * (long_us - lag)))
            off[1].append(b1 - a0 - 2 * long_us)
        name = f"{long_us} us, {blocks} blocks, second {lag_us} us later"
        found[name] = {"first": spread(off[0]), "second": spread(off[1])}
    return found


# ---- with NCCL between two ranks ----

OPERATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "all_reduce": lambda whole, part: dist.all_reduce(whole, async_op=True),
    "all_gather": lambda whole, part: dist.all_gather_into_tensor(whole, part, async_op=True),
    "reduce_scatter": lambda whole, part: dist.reduce_scatter_tensor(part, whole, async_op=True),
    "all_to_all": lambda whole, part: dist.all_to_all_single(whole, whole.clone(), async_op=True),
    "broadcast": lambda whole, part: dist.broadcast(whole, 0, async_op=True),
}


def buffers(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    whole = torch.ones(size // 4, device="cuda")
    return whole, torch.ones(size // 4 // dist.get_world_size(), device="cuda")


def slowest(value: float) -> float:
    """Of all ranks: they count their calls by it, and must make as many."""
    if not dist.is_initialized():
        return value
    told = torch.tensor(value, dtype=torch.float64, device="cuda")
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return told.item()


def timed(side: torch.cuda.Stream, enqueue: Callable[[int], None], count: int) -> float:
    """Seconds of one of `count` that are enqueued on `side`."""
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    torch.cuda.synchronize()
    ends[0].record(side)
    enqueue(count)
    ends[1].record(side)
    torch.cuda.synchronize()
    return ends[0].elapsed_time(ends[1]) / 1000 / count


class Products:
    """Products of bf16 matrices on the default stream, which other streams run beside."""

    def __init__(self, size: int) -> None:
        self.matrices = [
            torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in "abc"
        ]
        self.count = 24
        self.flop = 2 * size**3
        self.seconds()
        self.alone_s = slowest(self.seconds())

    def seconds(
        self, before: Callable[[], Any] = int, after: Callable[[], Any] = int, rounds: int = 7
    ) -> float:
        """Of one product, the median of `rounds`; `before` enqueues what runs beside them."""
        times = []
        for _ in range(rounds):
            torch.cuda.synchronize()
            if dist.is_initialized():
                dist.barrier()
                torch.cuda.synchronize()
            before()
            torch.cuda._sleep(1_000_000)  # half a millisecond, in which what runs beside begins
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            marks[0].record()
            for _ in range(self.count):
                torch.mm(self.matrices[0], self.matrices[1], out=self.matrices[2])
            marks[1].record()
            marks[1].synchronize()
            after()
            times.append(marks[0].elapsed_time(marks[1]) / 1000 / self.count)
        return median(times)

    def lost(
        self, side: torch.cuda.Stream, enqueue: Callable[[int], None], each_s: float
    ) -> float | None:
        """Part of their speed; None: what runs beside ended before they did."""
        end = torch.cuda.Event()
        ended = []

        def before() -> None:
            enqueue(max(1, int(2.5 * self.count * self.alone_s / each_s) + 1))
            end.record(side)

        def after() -> None:
            ended.append(end.query())

        seconds = self.seconds(before, after)
        return None if any(ended) else 1 - self.alone_s / seconds


def gemm(kernels: Kernels, size: int) -> dict[str, Any]:
    """Part of its speed that a matrix product loses beside each."""
    products = Products(size)
    side = torch.cuda.Stream()

    def held(
        kernel: Any,
        each_s: float,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        room: int,
        *more: Any,
    ) -> Callable[[int], None]:
        if room >= 48 * 1024:
            kernel.set_shared_memory_config(room)
        at = cells(1)

        def enqueue(count: int) -> None:
            for _ in range(count):
                kernels.mark(args=[at], stream=side)
                args = [at, int(each_s * 1e9), *more]
                kernel(grid=grid, block=block, args=args, shared_mem=room, stream=side)

        return enqueue

    found: dict[str, Any] = {
        "alone_us": products.alone_s * 1e6,
        "tflops": products.flop / products.alone_s / 1e12,
        "waits on a value": beside_a_value(products, side),
    }
    for mib in (16, 64, 512) if dist.is_initialized() else ():
        whole, part = buffers(mib * MIB)

        def gather(count: int, whole: torch.Tensor = whole, part: torch.Tensor = part) -> None:
            with torch.cuda.stream(side):
                for _ in range(count):
                    dist.all_gather_into_tensor(whole, part)

        gather(5)
        each_s = slowest(timed(side, gather, 50))
        taken = of_kernel(lambda: gather(3))
        if taken is None:
            found[f"all_gather of {mib} MiB"] = {"each_us": each_s * 1e6, "kernel": "none"}
            continue
        grid, block, room = tuple(taken["grid"]), tuple(taken["block"]), int(taken["shared"])

        rows = {
            "nccl": gather,
            "footprint": held(kernels.hold, each_s, grid, block, room, 50),
            "footprint, looks without a pause": held(kernels.hold, each_s, grid, block, room, 0),
            # Of the gathered bytes this rank reads its part and writes the other.
            "footprint, moves": held(
                kernels.moving, each_s, grid, block, room, part, torch.empty_like(part), mib * 512
            ),
            "footprint, moves twice": held(
                kernels.moving,
                each_s,
                grid,
                block,
                room,
                whole,
                torch.empty_like(whole),
                mib * 1024,
            ),
            "one block": held(kernels.hold, each_s, (1, 1, 1), (32, 1, 1), 0, 50),
        }
        found[f"all_gather of {mib} MiB"] = {
            "each_us": each_s * 1e6,
            "footprint": [grid, block, room, taken["registers"]],
            **{name: products.lost(side, enqueue, each_s) for name, enqueue in rows.items()},
        }
    return found


def beside_a_value(products: Products, side: torch.cuda.Stream) -> float:
    driver = ctypes.CDLL("libcuda.so.1")
    word = torch.zeros(1, dtype=torch.int32).pin_memory()

    def before() -> None:
        word.zero_()
        address, stream = ctypes.c_uint64(word.data_ptr()), ctypes.c_void_p(side.cuda_stream)
        code = driver.cuStreamWaitValue32_v2(stream, address, ctypes.c_uint32(1), ctypes.c_uint(0))
        if code:
            raise RuntimeError(f"cuStreamWaitValue32: {code}")

    return 1 - products.alone_s / products.seconds(before, lambda: word.fill_(1))


def of_kernel(run: Callable[[], Any]) -> dict[str, Any] | None:
    """What torch's profiler says of the last of NCCL's kernels in this; None: there was none."""
    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profile.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text())["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel" and "nccl" in e["name"].lower()]
    if not kernels:
        return None
    said = kernels[-1]["args"]
    return {
        "kernel": kernels[-1]["name"].split("(")[0],
        "grid": said["grid"],
        "block": said["block"],
        "shared": said.get("shared memory", 0),
        "registers": said.get("registers per thread"),
        "us": median(e["dur"] for e in kernels),
    }


def footprints() -> list[dict[str, Any]]:
    rows = []
    for name, operation in OPERATIONS.items():
        for size in (1024, 65536, MIB, 16 * MIB, 256 * MIB):
            taken = of_kernel(partial(_three, operation, buffers(size)))
            rows.append({"operation": name, "bytes": size, **(taken or {"kernel": "none"})})
    return rows


def _three(operation: Callable[..., Any], pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    for _ in range(3):
        operation(*pair).wait()


def host(kernels: Kernels) -> dict[str, float]:
    """us of the host a call."""
    found = {}
    at = cells(1)
    count = 1000

    def both() -> None:
        kernels.mark(args=[at])
        kernels.hold(args=[at, 0, 0])

    calls: dict[str, Callable[[], Any]] = {"mark and hold by ctypes": both}
    if dist.is_initialized():
        small = torch.ones(256, device="cuda")
        calls["all_reduce of 1 KiB by nccl"] = lambda: dist.all_reduce(small, async_op=True)
    for name, call in calls.items():
        rounds = []
        for _ in range(5):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(count):
                call()
            rounds.append((time.perf_counter() - began) / count * 1e6)
        found[name] = median(rounds)
    return found


def nccl_memory(said: dict[str, Any]) -> None:
    """MiB that the GPU has less of after the first operations, into `said`."""

    def free() -> int:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info()[0])

    pair = buffers(16 * MIB)
    for name, operation in OPERATIONS.items():
        before = free()
        operation(*pair).wait()
        said[f"first {name}"] = (before - free()) / MIB


def main() -> None:
    chosen = options()
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    kernels = Kernels()
    found: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "ranks": size,
        "compiled_s": kernels.compiled_s,
        "clock": clock(kernels),
        "late_us": late(kernels),
        "shared_us": shared(kernels),
    }
    if size > 1:
        dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        found["memory_mib"] = {}
        nccl_memory(found["memory_mib"])
        found["footprint"] = footprints()
    else:
        print("one process: without NCCL's footprint, its memory and what products lose beside it")
    found["host_us"] = host(kernels)
    found["gemm"] = {str(n): gemm(kernels, n) for n in (chosen.gemm // 2, chosen.gemm)}
    if rank == 0:
        text = json.dumps(found, indent=1)
        print(text)
        if chosen.json:
            chosen.json.write_text(text + "\n")
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
