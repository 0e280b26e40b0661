#!/usr/bin/env python3
"""One rank of group_gpu.py: measures the parts that its argument names, prints them as JSON.

Ranks are told by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Every call of a loader is made by
all ranks, so that all count the same calls.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gpu_small import TRANSITION
from gpu_timing import Gpu

import gear

MIB = 1 << 20
ROUNDS = 5
PROFILES = 3  # at most: one that saw the kernel is enough
STEPS = 25  # of a round of training
WINDOWS = (
    (256, 1),
    (1024, 1),
    (4096, 1),
    (256, 64),
    (1024, 64),
)  # bytes of a row, steps of an item
LAWS = {"uniform": gear.Uniform(), "prioritised with update": gear.Weighted(alpha=0.6, beta=0.4)}
DRAWN = (256, 4096, 65536, 1 << 20)  # transitions a rank
OUTPUTS: dict[str, Any] = {
    "obs": gear.Step(),
    "next_obs": gear.Window(1, 2, column="obs"),
    "action": gear.Step(),
    "reward": gear.Step(),
    "done": gear.Step(),
}
Rows = list[dict[str, Any]]


class Rank:
    """This process: its group, its GPU, and buffers that are filled."""

    def __init__(self, rehearse: bool) -> None:
        self.group = gear.Group.from_env(timeout_s=120)
        self.gpu = Gpu("cpu", 1e-4)
        if not rehearse:
            device = self.group.rank % torch.cuda.device_count()
            torch.cuda.set_device(device)
            self.gpu = Gpu(f"cuda:{device}")

    def tier(self, name: str) -> str:
        if self.gpu.rehearsal:
            return "shared" if self.group.size > 1 else "host"
        return name if name == "pinned" else self.gpu.device.replace("cuda", "device")

    def filled(self, tier: str, row_bytes: int, pool_bytes: int, store: bool) -> gear.ReplayBuffer:
        """`pool_bytes` of random rows on every rank that is to `store` some."""
        schema = gear.Schema([gear.Column("x", (row_bytes,), "uint8")])
        page_steps = max(1, min(4096, 256 * 1024 // row_bytes))
        steps = pool_bytes // row_bytes // page_steps * page_steps
        buffer = gear.ReplayBuffer(
            schema, steps, tier=self.tier(tier), page_steps=page_steps, group=self.group
        )
        if store:
            chunk = max(page_steps, self.gpu.size(64 * MIB, MIB) // row_bytes)
            rng = np.random.default_rng(self.group.rank)
            block = rng.integers(0, 256, (chunk, row_bytes), np.uint8)
            with buffer.writer() as writer:
                for first in range(0, steps, chunk):
                    writer.extend(x=block[: steps - first])
                writer.end_episode()
        return buffer

    def loader(
        self, buffer: gear.ReplayBuffer, items: int, outputs: Any = None, **more: Any
    ) -> gear.Loader:
        to_gpu = self.gpu.to_gpu("zero_copy" if buffer.tier == "pinned" else None)
        if self.gpu.rehearsal:
            more.pop("nccl", None)
        return buffer.loader(
            items, outputs=outputs or {"x": gear.Step()}, locality="off", **to_gpu, **more
        )

    def deliver(self, loader: gear.Loader, bytes_moved: int) -> dict[str, Any]:
        """Batches that follow each other, and the kernels of eight of them."""

        def work() -> Any:
            return next(loader)["x"]

        for _ in range(3):
            work()
        calls = 2 if self.gpu.rehearsal else 12
        times = []
        for _ in range(ROUNDS):
            self.gpu.synchronize()
            self.group.barrier()
            began = time.perf_counter()
            for _ in range(calls):
                work()
            self.gpu.synchronize()
            times.append((time.perf_counter() - began) / calls)
        us = statistics.median(times) * 1e6
        # Batches are in flight where the profile begins and ends: it may see more or fewer kernels
        # than there were calls, and has been seen to miss all. A batch without messages is one.
        for _ in range(PROFILES):
            kernels = self.gpu.kernels(work, 12)
            gather_us = kernels.median_us("gather_rows")
            if all(self.group.exchange(gather_us > 0 or self.gpu.rehearsal)):
                break
        stats = loader.stats()
        return {
            "us": us,
            "gb_per_s": bytes_moved / us * 1e-3,
            "gather_us": gather_us,
            "gather_gb_per_s": bytes_moved / gather_us * 1e-3 if gather_us else 0.0,
            "kernels_us": kernels.by_name(),
            "remote_share": 1 - stats["local_bytes"] / stats["bytes"],
            "path": stats["path"],
        }


def scaling(rank: Rank) -> Rows:
    """Every rank draws from all, from both tiers that GPUs read."""
    rows = []
    for tier, pool, batch in (("device", 1024, 256), ("pinned", 1024, 64)):
        batch_bytes = rank.gpu.size(batch * MIB, 1 << 18)
        cases = [(row, steps, batch_bytes // (row * steps)) for row, steps in WINDOWS]
        for row_bytes, steps, items in [*cases, (1024, 1, 256)]:
            pool_bytes = rank.gpu.size(pool * MIB, 4 * MIB)
            outputs = {"x": gear.Window(0, steps)}
            with (
                rank.filled(tier, row_bytes, pool_bytes, store=True) as buffer,
                rank.loader(buffer, items, outputs=outputs) as loader,
            ):
                found = rank.deliver(loader, items * row_bytes * steps)
            sizes = {"row_bytes": row_bytes, "steps": steps, "items": items}
            rows.append({"tier": tier, **sizes, **found})
    return rows


def draws(rank: Rank) -> Rows:
    """Transitions from the GPUs of all ranks, which keep what they draw: locality='first'."""
    with contextlib.ExitStack() as open_ones:
        cases = []
        for law, items in [(law, items) for law in LAWS for items in DRAWN]:
            steps = rank.gpu.size(1_000_000, 4000)
            items = rank.gpu.size(items, 16)
            buffer = open_ones.enter_context(
                gear.ReplayBuffer(
                    gear.Schema(TRANSITION), steps, tier=rank.tier("device"), group=rank.group
                )
            )
            rng = np.random.default_rng(rank.group.rank)
            episode = {c.name: rng.random((1000, *c.shape), np.float32) for c in TRANSITION}
            with buffer.writer() as writer:
                for _ in range(0, steps, 1000):
                    writer.extend(**episode)
                    writer.end_episode(terminated=True)
            loader = open_ones.enter_context(
                buffer.loader(items, sampler=LAWS[law], outputs=OUTPUTS, **rank.gpu.to_gpu(None))
            )
            errors = None if law == "uniform" else torch.rand(items, device=rank.gpu.device) + 0.01
            cases.append(Turns(rank, law, items, 168, buffer, loader, errors))
        items = rank.gpu.size(4096, 16)
        buffer = open_ones.enter_context(
            rank.filled("device", 4096, rank.gpu.size(1024 * MIB, 4 * MIB), True)
        )
        loader = open_ones.enter_context(
            buffer.loader(items, outputs={"x": gear.Step()}, **rank.gpu.to_gpu(None))
        )
        cases.append(Turns(rank, "uniform", items, 4096, buffer, loader, None))
        rows = [one.times() for one in cases]
        # A process that has looked at kernels once pays for every launch from then on.
        for row, one in zip(rows, cases, strict=True):
            row["kernels_us"] = rank.gpu.kernels(one.turn, 20).by_name()
    return rows


class Turns:
    """Batches that follow each other, with what comes with them."""

    def __init__(
        self,
        rank: Rank,
        law: str,
        items: int,
        row_bytes: int,
        buffer: gear.ReplayBuffer,
        loader: gear.Loader,
        errors: torch.Tensor | None,
    ) -> None:
        self.rank, self.law, self.items, self.row_bytes = rank, law, items, row_bytes
        self.buffer, self.loader, self.errors = buffer, loader, errors

    def turn(self) -> None:
        batch = next(self.loader)
        if self.errors is not None:
            self.buffer.update(batch.ids, self.errors)

    def times(self) -> dict[str, Any]:
        """Microseconds of a turn: the median of rounds, and their range."""
        for _ in range(20):
            self.turn()
        calls = 4 if self.rank.gpu.rehearsal else max(20, min(2000, 20_000_000 // self.items))
        times = []
        for _ in range(ROUNDS):
            self.rank.gpu.synchronize()
            self.rank.group.barrier()
            began = time.perf_counter()
            for _ in range(calls):
                self.turn()
            self.rank.gpu.synchronize()
            times.append((time.perf_counter() - began) / calls * 1e6)
        us = statistics.median(times)
        stats = self.loader.stats()
        return {
            "law": self.law,
            "items": self.items,
            "row_bytes": self.row_bytes,
            "us": us,
            "least_us": min(times),
            "most_us": max(times),
            "gb_per_s": self.items * self.row_bytes / us * 1e-3,
            "gather_gb_per_s": 0.0,
            "remote_share": 1 - stats["local_bytes"] / stats["bytes"] if stats["bytes"] else 0.0,
        }


def from_peers(rank: Rank) -> Rows:
    """Rank 0 stores nothing: all that it gets lies in the others' memory."""
    rows = []
    for row_bytes, steps in WINDOWS:
        pool_bytes = rank.gpu.size(2048 * MIB, 4 * MIB)
        items = rank.gpu.size(256 * MIB, 1 << 18) // (row_bytes * steps)
        outputs = {"x": gear.Window(0, steps)}
        with (
            rank.filled("device", row_bytes, pool_bytes, store=rank.group.rank > 0) as buffer,
            rank.loader(buffer, items, outputs=outputs) as loader,
        ):
            batch_bytes = items * row_bytes * steps
            found = rank.deliver(loader, batch_bytes)
        sizes = {"row_bytes": row_bytes, "steps": steps, "batch_bytes": batch_bytes}
        rows.append({**sizes, **found})
    return rows


def messages(rank: Rank) -> Rows:
    """Ranks that are told to be on nodes of their own: rows are packed, sent and unpacked."""
    rows = []
    for nccl in (True, False):
        for mib in (1, 64):
            items = rank.gpu.size(mib * MIB, 65536) // 1024
            pool_bytes = rank.gpu.size(256 * MIB, 4 * MIB)
            with (
                rank.filled("device", 1024, pool_bytes, store=True) as buffer,
                rank.loader(buffer, items, nccl=nccl) as loader,
            ):
                found = rank.deliver(loader, items * 1024)
            way = "nccl" if nccl else rank.group.transport_name
            rows.append({"way": way, "row_bytes": 1024, "batch_bytes": items * 1024, **found})
    return rows


def overlap(rank: Rank) -> dict[str, Any]:
    """What fresh batches from all GPUs' memory add to a step of data-parallel training."""
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    gpu = rank.gpu
    width, items = (64, 32) if gpu.rehearsal else (4096, 8192)
    backend = "gloo" if gpu.rehearsal else "nccl"
    torch.distributed.init_process_group(backend, rank=rank.group.rank, world_size=rank.group.size)
    dtype = torch.float32 if gpu.rehearsal else torch.bfloat16
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(width, width), nn.GELU()]
    model = DistributedDataParallel(nn.Sequential(*layers).to(gpu.device, dtype))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    schema = gear.Schema([gear.Column("x", (width,), "float32")])
    steps = gpu.size(1 << 17, 256)
    rng = np.random.default_rng(rank.group.rank)
    with gear.ReplayBuffer(schema, steps, tier=rank.tier("device"), group=rank.group) as buffer:
        with buffer.writer() as writer:
            writer.extend(x=rng.standard_normal((steps, width), np.float32))
            writer.end_episode()
        outputs = {"x": gear.Step(dtype="float32" if gpu.rehearsal else "bfloat16")}
        with rank.loader(buffer, items, outputs=outputs) as loader:
            fixed = next(loader)["x"].clone()

            def step(data: torch.Tensor) -> None:
                optimizer.zero_grad(set_to_none=True)
                model(data).square().mean().backward()
                optimizer.step()

            def timed(fetch: Callable[[], torch.Tensor]) -> float:
                gpu.synchronize()
                rank.group.barrier()
                began = time.perf_counter()
                for _ in range(2 if gpu.rehearsal else STEPS):
                    step(fetch())
                gpu.synchronize()
                return (time.perf_counter() - began) / (2 if gpu.rehearsal else STEPS)

            def fresh() -> torch.Tensor:
                found: torch.Tensor = next(loader)["x"]
                return found

            for fetch in (lambda: fixed, fresh):
                timed(fetch)
            pairs = [(timed(lambda: fixed), timed(fresh)) for _ in range(1 if gpu.rehearsal else 7)]
    torch.distributed.destroy_process_group()
    without, with_batches = (statistics.median(column) for column in zip(*pairs, strict=True))
    costs = [fetched / alone - 1 for alone, fetched in pairs]
    return {
        "step_us": without * 1e6,
        "step_with_batches_us": with_batches * 1e6,
        "cost": statistics.median(costs),
        "costs": costs,
        "batch_bytes": items * width * 4,
        "items": items,
    }


PARTS: dict[str, Callable[[Rank], Any]] = {
    "scaling": scaling,
    "draws": draws,
    "from_peers": from_peers,
    "messages": messages,
    "overlap": overlap,
}


def main() -> None:
    wanted = json.loads(sys.argv[1])
    rank = Rank(wanted["rehearse"])
    if rank.gpu.rehearsal:
        torch.set_num_threads(1)
    found = {part: PARTS[part](rank) for part in wanted["parts"]}
    print("measured " + json.dumps(found), flush=True)
    rank.group.barrier()
    rank.group.close()


if __name__ == "__main__":
    main()
