#!/usr/bin/env python3
"""What a GPU lets an emulated operation do: a kernel that takes NCCL's place until a time.

    python -m torch.distributed.run --nproc-per-node=2 benchmarks/emu_gpu.py --json out.json

clock: the step of %globaltimer, which such a kernel looks at. late: how long after its time the
stream goes on, of holds of 5 us to 50 ms: alone, two streams at once, in a CUDA graph; and where
two share a link by a counter in the GPU's memory, beside the closed form. gemm: what matrix
products lose beside NCCL's all_gather, beside a hold of the same blocks, threads and memory, one
that also moves the bytes through the GPU's memory, one of a single block, and a stream that waits
on a value; and how long NCCL's kernels and the holds last beside them. host: us that a call takes
of the host. memory: what NCCL itself takes, which torch's allocator does not see.

With one process, what needs NCCL between two GPUs is left out, which is said.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

import torch
import torch.distributed as dist

from gear.emu.footprints import kernels_of, taken_by

cuda: Any = torch.cuda  # of which much has no types

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

// Each block leaves for_ns after it began, as a channel of NCCL's that moves its share.
extern "C" __global__ void hold(int for_ns, int pause_ns) {
  if (threadIdx.x == 0) {
    const unsigned long long end = now() + for_ns;
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
extern "C" __global__ void moving(int for_ns, const uint4* from, uint4* to, int kib) {
  const unsigned long long begin = now();
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
ROUNDS = 9


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--only-gemm", action="store_true", help="what products lose, alone")
    parser.add_argument(
        "--gemm", type=int, default=8192, metavar="N", help="N x N x N: %(default)s"
    )
    return parser.parse_args()


class Kernels:
    """The kernels above, compiled by the NVRTC of torch's wheel."""

    def __init__(self) -> None:
        began = time.perf_counter()
        names = ("ticks", "mark", "hold", "share", "moving")
        self.made = {name: cuda._compile_kernel(KERNELS, name) for name in names}
        self.compiled_s = (time.perf_counter() - began) / len(names)
        self.driver = ctypes.CDLL("libcuda.so.1")

    def ready(
        self,
        name: str,
        *arguments: torch.Tensor | int,
        stream: Any = None,
        grid: tuple[int, ...] = (1, 1, 1),
        block: tuple[int, ...] = (1, 1, 1),
        shared: int = 0,
    ) -> Callable[[], None]:
        """A launch whose arguments have been put together, which costs the host least."""
        kernel = self.made[name]
        if shared >= 48 * 1024:
            kernel.set_shared_memory_config(shared)
        values = [
            ctypes.c_void_p(one.data_ptr()) if isinstance(one, torch.Tensor) else ctypes.c_int(one)
            for one in arguments
        ]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(one) for one in values])
        on = ctypes.c_void_p((stream or cuda.current_stream()).cuda_stream)
        form = [ctypes.c_uint(one) for one in (*grid, *block, shared)]
        kept = (values, arguments)  # as long as the launch can be made

        def launch() -> None:
            code = self.driver.cuLaunchKernel(kernel.func, *form, on, pointers, None)
            if code:
                raise RuntimeError(f"{name}: cuLaunchKernel says {code}, of {kept}")

        return launch


def cells(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int64, device="cuda")


def spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"p50": median(ordered), "p95": quantiles(ordered, n=100)[94], "max": ordered[-1]}


def clock(kernels: Kernels) -> dict[str, Any]:
    steps = cells(2000)
    kernels.ready("ticks", steps, 2000)()
    counted = torch.bincount(steps[100:].clamp(max=100_000)).cpu()
    common = int(counted.argmax())
    return {
        "step_ns": common,
        "of_1900": int(counted[common]),
        "least_ns": int(counted.nonzero()[0]),
    }


def gated(streams: list[Any], launches: list[Callable[[], None]]) -> None:
    """Has the streams begin together once all has been launched: what is measured is no host."""
    cuda.synchronize()
    cuda._sleep(200_000_000)  # 0.1 s
    opened = cuda.Event()
    opened.record()
    for stream in streams:
        stream.wait_event(opened)
    for launch in launches:
        launch()
    if opened.query():
        raise RuntimeError("the host took longer than 0.1 s for its launches")
    cuda.synchronize()


def late(kernels: Kernels) -> dict[str, Any]:
    """us from a mark to the next beyond the hold between them; 0 us: with no hold between."""
    found: dict[str, Any] = {}
    streams = [cuda.Stream() for _ in range(2)]

    def chain(
        on: list[Any], at: torch.Tensor, hold_us: int, pause_ns: int
    ) -> list[Callable[[], None]]:
        launches = []
        for i, pair in enumerate(at):
            stream = on[i % len(on)]
            hold = kernels.ready("hold", hold_us * 1000, pause_ns, stream=stream)
            launches += [
                kernels.ready("mark", pair[:1], stream=stream),
                *([hold] if hold_us else []),
                kernels.ready("mark", pair[1:], stream=stream),
            ]
        return launches

    def beyond(at: torch.Tensor, hold_us: float) -> dict[str, float]:
        return spread([(end - begin) / 1000 - hold_us for begin, end in at.tolist()])

    for on, pauses in ((streams[:1], (0, 50, 200)), (streams, (50,))):
        for pause_ns in pauses:
            for hold_us in (0, *HOLDS_US):
                at = cells(400 if hold_us < 2000 else 40).view(-1, 2)
                gated(on, chain(on, at, hold_us, pause_ns))
                name = f"{len(on)} stream(s), pause {pause_ns} ns, {hold_us} us"
                found[name] = beyond(at, hold_us)
    for hold_us in (0, *HOLDS_US[:6]):
        at = cells(400).view(-1, 2)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            for launch in chain([cuda.current_stream()], at, hold_us, 50):
                launch()
        graph.replay()
        cuda.synchronize()
        found[f"in a graph, {hold_us} us"] = beyond(at, hold_us)
    return found


def shared(kernels: Kernels) -> dict[str, Any]:
    """us beside the closed form, of two holds on one link, the second of which begins later."""
    found = {}
    streams = [cuda.Stream() for _ in range(2)]
    for long_us, lag_us, blocks in ((1000, 300, 1), (1000, 300, 16), (100, 30, 16), (20, 6, 16)):
        off: tuple[list[float], list[float]] = [], []
        for _ in range(60):
            in_flight = torch.zeros(1, dtype=torch.int32, device="cuda")
            done = torch.zeros(2, dtype=torch.int32, device="cuda")
            at = cells(4)
            launches = []
            for i, stream in enumerate(streams):
                form = {"grid": (blocks, 1, 1), "block": (256, 1, 1), "stream": stream}
                launches += [
                    kernels.ready("hold", 1 + i * lag_us * 1000, 0, stream=stream),
                    kernels.ready("mark", at[2 * i :], stream=stream),
                    kernels.ready("share", in_flight, long_us * 1000, done[i:], **form),
                    kernels.ready("mark", at[2 * i + 1 :], stream=stream),
                ]
            gated(streams, launches)
            a0, a1, b0, b1 = (value / 1000 for value in at.tolist())
            off[0].append(a1 - a0 - (b0 - a0 + 2 * (long_us - (b0 - a0))))
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


def timed(side: Any, enqueue: Callable[[int], None], count: int) -> float:
    """Seconds of one of `count` that are enqueued on `side`."""
    ends = [cuda.Event(enable_timing=True) for _ in range(2)]
    cuda.synchronize()
    ends[0].record(side)
    enqueue(count)
    ends[1].record(side)
    cuda.synchronize()
    return float(ends[0].elapsed_time(ends[1])) / 1000 / count


class Products:
    """Products of bf16 matrices on the default stream, which other streams run beside."""

    def __init__(self, size: int) -> None:
        self.matrices = [
            torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in "abc"
        ]
        self.count = 24
        self.flop = 2 * size**3
        for _ in range(5):
            self.seconds()
        self.alone_s = slowest(median(self.seconds() for _ in range(5)))

    def seconds(self, before: Callable[[], Any] = int, after: Callable[[], Any] = int) -> float:
        """Of one product; `before` enqueues what runs beside them."""
        cuda.synchronize()
        if dist.is_initialized():
            dist.barrier()
            cuda.synchronize()
        before()
        cuda._sleep(1_000_000)  # half a millisecond, in which what runs beside begins
        marks = [cuda.Event(enable_timing=True) for _ in range(2)]
        marks[0].record()
        for _ in range(self.count):
            torch.mm(self.matrices[0], self.matrices[1], out=self.matrices[2])
        marks[1].record()
        marks[1].synchronize()
        after()
        return float(marks[0].elapsed_time(marks[1])) / 1000 / self.count

    def lost(self, ways: dict[str, tuple[Callable[[], Any], Callable[[], Any]]]) -> dict[str, Any]:
        """Part of their speed beside each, median and range of ROUNDS; turn by turn with products
        alone, since a GPU's clock goes by what it has done before."""
        found: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, (before, after) in ways.items():
                alone_s = self.seconds()
                found[name].append(1 - alone_s / self.seconds(before, after))
        return {
            name: {"median": median(each), "range": [min(each), max(each)]}
            for name, each in found.items()
        }


def gemm(kernels: Kernels, size: int) -> dict[str, Any]:
    """Part of its speed that a matrix product loses beside each."""
    products = Products(size)
    side = cuda.Stream()
    found: dict[str, Any] = {
        "alone_us": products.alone_s * 1e6,
        "tflops": products.flop / products.alone_s / 1e12,
        "a value": products.lost({"waits": beside_a_value(side)})["waits"],
    }
    for mib in (16, 64, 512) if dist.is_initialized() else ():
        found[f"all_gather of {mib} MiB"] = beside_all_gather(kernels, products, side, mib)
    return found


def beside_all_gather(kernels: Kernels, products: Products, side: Any, mib: int) -> dict[str, Any]:
    whole, part = buffers(mib * MIB)

    def gather(count: int) -> None:
        with cuda.stream(side):
            for _ in range(count):
                dist.all_gather_into_tensor(whole, part)

    gather(5)
    each_s = slowest(timed(side, gather, 50))
    taken = taken_by(lambda: gather(3))
    said = {"each_us": each_s * 1e6, "taken": taken}
    if slowest(float(taken is None)) or taken is None:  # by copy engines, on one rank at least
        return said
    count = int(2.0 * products.count * products.alone_s / each_s) + 1
    for_ns = int(each_s * 1e9)
    end = cuda.Event()
    too_short = set()

    def way(name: str, enqueue: Callable[[int], None]) -> tuple[Callable[[], Any], Any]:
        def before() -> None:
            enqueue(count)
            end.record(side)

        return before, lambda: too_short.add(name) if end.query() else None

    def held(kernel: str, *more: Any, **form: Any) -> Callable[[int], None]:
        launch = kernels.ready(kernel, for_ns, *more, stream=side, **form)

        def enqueue(count: int) -> None:
            for _ in range(count):
                launch()

        return enqueue

    blocks, threads, shared = taken
    form = {"grid": (blocks, 1, 1), "block": (threads, 1, 1), "shared": shared}
    ways = {
        "nccl": gather,
        "footprint": held("hold", 50, **form),
        # Of the gathered bytes this rank reads its part, and writes the other.
        "footprint, moves": held("moving", part, torch.empty_like(part), mib * 512, **form),
        "footprint, moves twice": held(
            "moving", whole, torch.empty_like(whole), mib * 1024, **form
        ),
        "one block": held("hold", 50, block=(32, 1, 1)),
    }
    lost = products.lost({name: way(name, enqueue) for name, enqueue in ways.items()})
    lasts = {
        name: lasting_us(products, partial(ways[name], count), kernel)
        for name, kernel in (("nccl", "nccl"), ("footprint", "hold"))
    }
    return {**said, "lost": lost, "lasts_us": lasts, "ended before the products": sorted(too_short)}


def lasting_us(products: Products, before: Callable[[], Any], kernel: str) -> float:
    """How long such kernels last beside products, on the mean."""
    cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        products.seconds(before)
        cuda.synchronize()
    events = sorted(kernels_of(profile), key=lambda event: float(event["ts"]))
    # The longest of those that are not it are the products.
    others = sorted(
        (e for e in events if kernel not in e["name"].lower() and "spin" not in e["name"]),
        key=lambda event: float(event["dur"]),
    )[-products.count :]
    first, last = min(e["ts"] for e in others), max(e["ts"] for e in others)
    found = [e["dur"] for e in events if kernel in e["name"].lower() and first < e["ts"] < last]
    return fmean(found) if found else float("nan")


def beside_a_value(side: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    driver = ctypes.CDLL("libcuda.so.1")
    word = torch.zeros(1, dtype=torch.int32).pin_memory()

    def before() -> None:
        word.zero_()
        address, stream = ctypes.c_uint64(word.data_ptr()), ctypes.c_void_p(side.cuda_stream)
        code = driver.cuStreamWaitValue32_v2(stream, address, ctypes.c_uint32(1), ctypes.c_uint(0))
        if code:
            raise RuntimeError(f"cuStreamWaitValue32: {code}")

    return before, lambda: word.fill_(1)


def host(kernels: Kernels) -> dict[str, float]:
    """us of the host a call."""
    found = {}
    count = 1000
    calls: dict[str, Callable[[], Any]] = {"a launch by ctypes": kernels.ready("hold", 0, 0)}
    if dist.is_initialized():
        small = torch.ones(256, device="cuda")
        calls["all_reduce of 1 KiB by nccl"] = lambda: dist.all_reduce(small, async_op=True)
    for name, call in calls.items():
        rounds = []
        for _ in range(5):
            cuda.synchronize()
            began = time.perf_counter()
            for _ in range(count):
                call()
            rounds.append((time.perf_counter() - began) / count * 1e6)
        found[name] = median(rounds)
    return found


def nccl_memory(said: dict[str, Any]) -> None:
    """MiB that the GPU has less of after the first operations, into `said`."""

    def free() -> int:
        cuda.synchronize()
        cuda.empty_cache()
        return int(cuda.mem_get_info()[0])

    pair = buffers(16 * MIB)
    for name, operation in OPERATIONS.items():
        before = free()
        operation(*pair).wait()
        said[f"first {name}"] = (before - free()) / MIB


def main() -> None:
    chosen = options()
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    kernels = Kernels()
    found: dict[str, Any] = {
        "gpu": cuda.get_device_name(),
        "torch": torch.__version__,
        "ranks": size,
        "compiled_s": kernels.compiled_s,
    }
    if not chosen.only_gemm:
        found["clock"] = clock(kernels)
        found["late_us"] = late(kernels)
        found["shared_us"] = shared(kernels)
    if size > 1:
        dist.init_process_group("nccl", device_id=torch.device("cuda", cuda.current_device()))
        found["nccl"] = ".".join(map(str, cuda.nccl.version()))
        found["memory_mib"] = {}
        nccl_memory(found["memory_mib"])
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
