#!/usr/bin/env python3
"""Measure how long an actor's append takes while a GPU trains.

    python benchmarks/gpu_appends.py --json out.json    every case, some two minutes
    python benchmarks/gpu_appends.py --only device,pinned
    python benchmarks/gpu_appends.py --rehearse         tiny sizes on the CPU: figures mean nothing

One thread appends a step every millisecond. Beside it the training loop draws a batch, works on the
GPU for some 130 ms and, where it draws by priority, gives the priorities of the batch back as a
tensor of the GPU; it is a few steps ahead of the GPU. Each tier, each law, into a buffer with room
and into a full one, whose pages are used again.

The JSON holds machine, runs, targets and seconds. `lost` are appends that were due while an earlier
one still waited.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpu_report
import numpy as np
import torch
from gpu_timing import Gpu, gpu_for

import gear

TIERS = ("host", "shared", "pinned", "device")
SAMPLERS = (gear.Uniform(), gear.Weighted(alpha=0.6, beta=0.4))
COLUMNS = [
    gear.Column("obs", (84, 84), "uint8"),
    gear.Column("action", (), "int64"),
    gear.Column("reward", (), "float32"),
]
EPISODE = 1000
PAGE_STEPS = 64
BATCH = 256
NAME = "gear_bench_appends"
PERIOD_S = 1e-3
STEP_S = 0.13
AHEAD = 2
"""Steps that the loop is ahead of the GPU."""
MOST_P99_US = 100.0
MOST_US = 1000.0


def episode(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "obs": rng.integers(0, 256, (EPISODE, 84, 84), np.uint8),
        "action": rng.integers(0, 4, EPISODE),
        "reward": rng.random(EPISODE, np.float32),
    }


def filled(gpu: Gpu, tier: str, full: bool) -> gear.ReplayBuffer:
    """With ten episodes in it: all that it has room for, or a fifth of that."""
    pages = -(-EPISODE // PAGE_STEPS)
    capacity = 10 * pages * PAGE_STEPS * (1 if full else 5)
    tier = gpu.tier(tier)
    buffer = gear.ReplayBuffer(
        gear.Schema(COLUMNS),
        capacity,
        tier=tier,
        page_steps=PAGE_STEPS,
        name=NAME if tier == "shared" else None,
    )
    steps = episode(np.random.default_rng(0))
    with buffer.writer() as writer:
        for _ in range(10):
            writer.extend(**steps)
            writer.end_episode(terminated=True)
    return buffer


class Training:
    """A step of some 130 ms of matrix products, whose loss is a priority an item."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        size = 64 if gpu.rehearsal else 8192
        self.weights = torch.rand(size, size, device=gpu.device) / size
        self.products = 1
        if not gpu.rehearsal:
            self.products = max(1, round(STEP_S * 1e6 / gpu.wall_us(self.work)))

    def work(self) -> Any:
        state = self.weights
        for _ in range(self.products):
            state = self.weights @ state
        return state

    def step_ms(self) -> float:
        return self.gpu.wall_us(self.work, rounds=1) / 1e3

    def losses(self, batch: gear.Batch) -> Any:
        outcome = self.work()[0, 0]  # behind the products, as a loss is
        return (batch["reward"] + 0.01) * (1 + 0 * outcome)


@dataclass
class Actor:
    """Appends one step each PERIOD_S, until it is told to stop."""

    buffer: gear.ReplayBuffer
    made: int = 0
    lost: int = 0
    times_ns: list[int] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def run(self) -> None:
        try:
            with self.buffer.writer() as writer:
                self.act(writer)
        except BaseException as error:  # noqa: BLE001  # for the thread that waits for this one
            self.error = error

    def act(self, writer: gear.Writer) -> None:
        steps = episode(np.random.default_rng(1))
        due = time.perf_counter()
        while True:
            row = {name: values[self.made % EPISODE] for name, values in steps.items()}
            began = time.perf_counter_ns()
            writer.append(**row)
            self.times_ns.append(time.perf_counter_ns() - began)
            self.made += 1
            if self.stopped.is_set():
                return
            if self.made % EPISODE == 0:
                writer.end_episode(terminated=True)
            due += PERIOD_S
            missed = max(0, int((time.perf_counter() - due) / PERIOD_S))
            self.lost += missed
            due += missed * PERIOD_S
            time.sleep(max(0.0, due - time.perf_counter()))


def train(
    gpu: Gpu,
    training: Training,
    buffer: gear.ReplayBuffer,
    loader: gear.Loader,
    steps: int,
    *,
    updates: bool,
) -> None:
    """At most AHEAD steps before the GPU; returns when that has made them all."""
    under_way: deque[Any] = deque()
    for _ in range(steps):
        batch = next(loader)
        losses = training.losses(batch)
        if updates:
            buffer.update(batch.ids, losses)
        if gpu.rehearsal:
            continue
        under_way.append(torch.cuda.Event())  # type: ignore[no-untyped-call]
        under_way[-1].record()
        if len(under_way) > AHEAD:
            under_way.popleft().synchronize()
    gpu.synchronize()


def measure(gpu: Gpu, training: Training, tier: str, sampler: Any, full: bool) -> dict[str, Any]:
    buffer = filled(gpu, tier, full)
    loader = buffer.loader(BATCH, sampler=sampler, seed=1, **gpu.to_gpu())
    updates = isinstance(sampler, gear.Weighted)
    train(gpu, training, buffer, loader, 3, updates=updates)
    inserted = buffer.stats()["steps_inserted"]
    actor = Actor(buffer)
    thread = threading.Thread(target=actor.run)
    thread.start()
    began = time.perf_counter()
    train(gpu, training, buffer, loader, gpu.size(20, 3), updates=updates)
    seconds = time.perf_counter() - began
    actor.stopped.set()
    thread.join()
    if actor.error:
        raise actor.error
    inserted = buffer.stats()["steps_inserted"] - inserted
    if inserted != actor.made:
        raise RuntimeError(f"{actor.made} appends, of which {inserted} are counted as inserted")
    path = loader.stats().get("path", "")
    loader.close()
    buffer.close()
    times_us = np.array(actor.times_ns) / 1e3
    return {
        "tier": tier,
        "sampler": sampler.policy,
        "path": path,
        "full": full,
        "appends": actor.made,
        "p50_us": float(np.percentile(times_us, 50)),
        "p99_us": float(np.percentile(times_us, 99)),
        "worst_us": float(times_us.max()),
        "lost": actor.lost,
        "seconds": seconds,
    }


def targets(report: dict[str, Any]) -> list[dict[str, Any]]:
    """name, sign, required, measured and met, as gpu_targets.targets()."""
    rows = []
    for run in report["runs"]:
        name = f"append on {run['tier']}, {run['sampler']}{', full' if run['full'] else ''}"
        for figure, required in (("p99_us", MOST_P99_US), ("worst_us", MOST_US)):
            met = None if report["machine"]["rehearsal"] else run[figure] <= required
            row = {"name": f"{name}: {figure}", "sign": "<=", "required": required}
            rows.append(row | {"measured": run[figure], "met": met})
    return rows


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--only", default="", metavar="TIERS", help=",".join(TIERS))
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes, without a GPU")
    chosen = parser.parse_args(arguments)
    chosen.tiers = [name for name in chosen.only.split(",") if name] or list(TIERS)
    unknown = set(chosen.tiers) - set(TIERS)
    if unknown:
        parser.error(f"no tier {', '.join(sorted(unknown))}; there are {', '.join(TIERS)}")
    return chosen


def main(arguments: list[str] | None = None) -> int:
    chosen = options(arguments)
    gpu = gpu_for("gpu_appends", rehearse=chosen.rehearse, share=1e-4)
    if gpu is None:
        return 2
    began = time.perf_counter()
    training = Training(gpu)
    report: dict[str, Any] = {
        "machine": gpu.facts() | {"step_ms": training.step_ms()},
        "runs": [],
    }
    for tier in chosen.tiers:
        for sampler in SAMPLERS:
            for full in (False, True):
                report["runs"].append(measure(gpu, training, tier, sampler, full))
    report["targets"] = targets(report)
    gpu_report.finish(report, "appends", began, chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
