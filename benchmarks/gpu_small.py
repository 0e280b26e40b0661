"""Small batches, where what counts is what comes before the bytes: draws, updates, launches."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import torch
from gpu_rows import forget
from gpu_timing import Gpu

import gear

TRANSITION = [
    gear.Column("obs", (17,), "float32"),
    gear.Column("action", (6,), "float32"),
    gear.Column("reward", (), "float32"),
    gear.Column("done", (), "float32"),
]
NOT_DRAWS = ("gather", "plan")


def transitions(gpu: Gpu, tier: str, steps: int) -> gear.ReplayBuffer:
    """`steps` steps in episodes of 1000."""
    steps = gpu.size(steps, 4000)
    buffer = gear.ReplayBuffer(gear.Schema(TRANSITION), steps + 64_000, tier=gpu.tier(tier))
    rng = np.random.default_rng(0)
    episode = {c.name: rng.random((1000, *c.shape), np.float32) for c in TRANSITION}
    with buffer.writer() as writer:
        for _ in range(0, steps, 1000):
            writer.extend(**episode)
            writer.end_episode(terminated=True)
    return buffer


def small_batch(gpu: Gpu) -> dict[str, Any]:
    """256 transitions of 25 floats out of a million, drawn uniformly, in device memory."""
    buffer = transitions(gpu, "device", 1_000_000)
    loader = buffer.loader(256, sampler=gear.Uniform(), **gpu.to_gpu())

    def work() -> None:
        batch = next(loader)
        batch["obs"], batch["action"], batch["reward"], batch["done"]

    for _ in range(gpu.size(100, 4)):
        work()
    calls = gpu.size(20_000, 4)
    rates, host_us = [], []
    for _ in range(5):
        gpu.synchronize()
        began, cpu = time.perf_counter(), time.thread_time()
        for _ in range(calls):
            work()
        host_us.append((time.thread_time() - cpu) / calls * 1e6)
        gpu.synchronize()
        rates.append(calls / (time.perf_counter() - began))
    found = gpu.kernels(work, 200)
    stats = loader.stats()
    loader.close()
    buffer.close()
    return {
        "batches_per_s": statistics.median(rates),
        "batches_per_s_rounds": rates,
        "host_us_per_batch": statistics.median(host_us),
        "gpu_us": found.us(),
        "gpu_span_us": found.median_span_us(),
        "kernels_us": found.by_name(),
        "kernels_per_batch": len(found.spans) / found.calls,
        "selection": stats.get("selection", ""),
    }


def turns(gpu: Gpu) -> list[dict[str, Any]]:
    """What a training loop asks of a buffer each turn, of a million transitions in device memory: a
    batch of 256 or 4096, drawn uniformly, or by priority with the priorities of that batch set."""
    buffer = transitions(gpu, "device", 1_000_000)
    cases: list[tuple[gear.Loader, Any, dict[str, Any]]] = []
    for batch_size in (256, 4096):
        errors = torch.rand(batch_size, device=gpu.device) + 0.01
        for sampler in (gear.Uniform(), gear.Weighted(alpha=0.6, beta=0.4)):
            loader = buffer.loader(batch_size, sampler=sampler, **gpu.to_gpu())
            updates = isinstance(sampler, gear.Weighted)

            def work(loader: Any = loader, updates: bool = updates, errors: Any = errors) -> None:
                batch = next(loader)
                batch["obs"], batch["action"], batch["reward"], batch["done"]
                if updates:
                    buffer.update(batch.ids, errors)

            for _ in range(gpu.size(100, 4)):
                work()
            row: dict[str, Any] = {
                "batch_size": batch_size,
                "sampler": sampler.policy,
                "wall_us": gpu.wall_us(work),
                "host_us": issue_us(gpu, work),
            }
            cases.append((loader, work, row))
    # A process that has looked at kernels once pays for every launch from then on.
    for loader, work, row in cases:
        found = gpu.kernels(work, 200)
        row["gpu_us"], row["kernels_us"] = found.us(), found.by_name()
        loader.close()
    buffer.close()
    forget(gpu)
    return [row for _, _, row in cases]


def issue_us(gpu: Gpu, work: Any) -> float:
    """Microseconds of a call until it returns, few enough in a row that none waits for the GPU."""
    times = []
    for _ in range(gpu.size(50)):
        gpu.synchronize()
        began = time.perf_counter()
        for _ in range(20):
            work()
        times.append((time.perf_counter() - began) / 20)
    return statistics.median(times) * 1e6


def weighted(gpu: Gpu) -> list[dict[str, Any]]:
    """4096 draws and as many updates by tensors on the GPU, at 1e6, 1e7 and 1e8 leaves."""
    rows = []
    for leaves in (1_000_000, 10_000_000, 100_000_000):
        steps = gpu.size(leaves, 5000)
        schema = gear.Schema([gear.Column("x", (), "uint8")])
        buffer = gear.ReplayBuffer(schema, steps, tier=gpu.tier("device"), page_steps=1000)
        chunk = min(steps, 1_000_000)
        values = np.zeros(chunk, np.uint8)
        rng = np.random.default_rng(0)
        priority = rng.random(chunk, np.float32) + 0.01
        with buffer.writer() as writer:
            for first in range(0, steps, chunk):
                count = min(chunk, steps - first)
                writer.extend(x=values[:count], priority=priority[:count])
            writer.end_episode()
        sampler = gear.Weighted(alpha=0.6, beta=0.4)
        loader = buffer.loader(4096, sampler=sampler, **gpu.to_gpu())
        errors = torch.rand(4096, device=gpu.device) + 0.01

        def work(buffer: Any = buffer, loader: Any = loader, errors: Any = errors) -> None:
            buffer.update(next(loader).ids, errors)

        for _ in range(10):
            work()
        wall = gpu.wall_us(work)
        found = gpu.kernels(work, 100)
        rows.append(
            {
                "leaves": steps,
                "draws_and_updates_us": found.us_but(*NOT_DRAWS),
                "gpu_us": found.us(),
                "gpu_span_us": found.median_span_us(),
                "wall_us": wall,
                "kernels_us": found.by_name(),
                "torch_draws_us": torch_draws(gpu, steps),
            }
        )
        loader.close()
        buffer.close()
        forget(gpu)
    return rows


def torch_draws(gpu: Gpu, leaves: int) -> float:
    """4096 draws, no updates, as they are written by hand: cumsum and searchsorted."""
    weights = torch.rand(leaves, device=gpu.device) + 0.01

    def work() -> Any:
        ends = torch.cumsum(weights, 0)
        return torch.searchsorted(ends, torch.rand(4096, device=gpu.device) * ends[-1])

    return gpu.wall_us(work)
