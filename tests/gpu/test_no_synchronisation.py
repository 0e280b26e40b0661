"""In steady state GEAR never waits for the GPU on the host: counted by CUPTI over 100 steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numbered import SCHEMA, rows

import gear

torch = pytest.importorskip("torch")

STEPS = 100
# What waits for the GPU, or for memory; by the names of the runtime's and the driver's calls.
WAITING = (
    "StreamSynchronize",
    "DeviceSynchronize",
    "CtxSynchronize",
    "EventSynchronize",
    "cudaMalloc",
    "cudaFree",
    "cudaHostAlloc",
    "cudaMallocHost",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemHostAlloc",
    "cudaHostRegister",
)
SYNCHRONOUS_COPIES = {"cudaMemcpy", "cudaMemcpy2D", "cudaMemset", "cudaMemcpyToSymbol"}


def waits(name: str) -> bool:
    return name in SYNCHRONOUS_COPIES or any(part in name for part in WAITING)


def calls_within(work: Callable[[], None]) -> Counter[str]:
    """Names of the CUDA calls of this process during `work`, the profiler's own left out."""
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities) as profiler:
        with record_function("steady state"):
            work()
        torch.cuda.synchronize()
    events = profiler.events()
    region = next(e for e in events if e.name == "steady state")
    begin, end = region.time_range.start, region.time_range.end
    on_host = [e for e in events if e.device_type == torch.autograd.DeviceType.CPU]
    return Counter(
        e.name for e in on_host if e.name.startswith("cu") and begin <= e.time_range.start <= end
    )


def fill(buffer: gear.ReplayBuffer, episodes: int = 40) -> None:
    rng = np.random.default_rng(0)
    first = 1
    for _ in range(episodes):
        with buffer.writer() as writer:
            numbers = np.arange(first, first + 100)
            writer.extend(priority=rng.random(100, np.float32), **rows(numbers))
            first += 100


def test_the_profiler_sees_what_gear_calls(gpu) -> None:
    """Delivery to host memory waits for the copy: that wait must be counted, or none would be."""
    if gpu.rehearsal:
        pytest.skip("the profiler counts calls of CUDA")
    with gear.ReplayBuffer(SCHEMA, 8192, tier="device") as buffer:
        fill(buffer)
        loader = buffer.loader(256, device="cpu", framework="torch")
        for _ in range(5):
            next(loader)

        def work() -> None:
            for _ in range(10):
                next(loader)["obs"].sum()

        counted = calls_within(work)
    assert any(waits(name) for name in counted), dict(counted)


@pytest.mark.parametrize("appends", [False, True], ids=["", "appends"])
@pytest.mark.parametrize(
    "sampler",
    [gear.Uniform(), gear.Weighted(alpha=0.6, beta=0.4), gear.Sequential(), gear.Fifo()],
    ids=repr,
)
@pytest.mark.parametrize(
    ("tier", "path"),
    [("device", None), ("pinned", "zero_copy"), ("pinned", "staged")],
    ids=["device", "zero_copy", "staged"],
)
def test_hundred_steps(gpu, tier: str, path: str | None, sampler, appends: bool) -> None:
    if appends and isinstance(sampler, gear.Sequential):
        pytest.skip("an epoch is over a buffer that stands still")
    weighted = isinstance(sampler, gear.Weighted)
    outputs = {"obs": gear.Window(-3, 1), "next": gear.Step(1, "obs"), "number": gear.Step()}
    with gear.ReplayBuffer(SCHEMA, 6000, tier="host" if gpu.rehearsal else tier) as buffer:
        fill(buffer)
        loader = buffer.loader(
            16, sampler=sampler, outputs=outputs, framework="torch", **gpu.to_gpu(path)
        )
        model = torch.nn.Linear(11, 11).to(gpu.device)
        numbers = np.arange(1, 11)

        def step() -> None:
            batch = next(loader)
            assert f"{buffer.num_episodes} episodes" in repr(buffer)  # as a debugger asks
            assert buffer.nbytes > 0
            loss = (model(batch["obs"]).sum(1) - batch["next"]).square().sum(1)
            loss.mean().backward()
            if weighted and path != "staged":  # where the CPU selects, it waits for priorities
                buffer.update(batch.ids, loss.detach())
            if appends:
                with buffer.writer() as writer:
                    writer.extend(**rows(numbers))
            if path == "staged" and not gpu.rehearsal:
                # More than prefetch + 2 batches ahead of the GPU the host waits for its copies:
                # a training loop that reads its loss now and then never is.
                done = torch.cuda.Event()
                done.record()
                while not done.query():
                    pass

        def work() -> None:
            for _ in range(STEPS):
                step()

        for _ in range(40):  # memory of torch and of the ring is there after these
            step()
        gpu.synchronize()
        if gpu.rehearsal:
            return work()
        # Sometimes the allocator of torch itself has to find memory again: then a second look.
        for _ in range(2):
            counted = calls_within(work)
            found: dict[str, Any] = {n: c for n, c in counted.items() if waits(n)}
            if not found:
                break
    assert sum(counted.values()) > STEPS, "the profiler saw nothing"
    assert found == {}, f"calls that wait within {STEPS} steps; all calls: {dict(counted)}"
