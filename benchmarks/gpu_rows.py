"""Rows of one size out of device and pinned memory, against what a bare kernel gets of them."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import torch
from gpu_timing import Gpu

import gear

MIB = 1 << 20
Rows = list[dict[str, Any]]


def filled(gpu: Gpu, tier: str, row_bytes: int, pool_bytes: int) -> gear.ReplayBuffer:
    """A buffer of `pool_bytes` of random rows, all of one episode, in pages of about 256 KiB."""
    schema = gear.Schema([gear.Column("x", (row_bytes,), "uint8")])
    page_steps = max(1, min(4096, 256 * 1024 // row_bytes))
    steps = pool_bytes // row_bytes // page_steps * page_steps
    buffer = gear.ReplayBuffer(schema, steps, tier=gpu.tier(tier), page_steps=page_steps)
    chunk = max(page_steps, gpu.size(64 * MIB, MIB) // row_bytes)
    block = np.random.default_rng(0).integers(0, 256, (chunk, row_bytes), np.uint8)
    with buffer.writer() as writer:
        for first in range(0, steps, chunk):
            writer.extend(x=block[: steps - first])
        writer.end_episode()
    return buffer


def deliver(
    gpu: Gpu,
    buffer: gear.ReplayBuffer,
    row_bytes: int,
    batch_bytes: int,
    path: str | None,
    *,
    prefetch: int = 2,
    kernels: bool = True,
) -> dict[str, Any]:
    """Uniform batches end to end (selection, plan, gather), and the gather kernel by itself."""
    items = batch_bytes // row_bytes
    with buffer.loader(
        items, outputs={"x": gear.Step()}, prefetch=prefetch, **gpu.to_gpu(path)
    ) as loader:

        def work() -> Any:
            return next(loader)["x"]

        us = gpu.wall_us(work)
        found = gpu.kernels(work, 8) if kernels else None
        stats = loader.stats()
    row = {
        "row_bytes": row_bytes,
        "batch_bytes": items * row_bytes,
        "prefetch": prefetch,
        "us": us,
        "gb_per_s": items * row_bytes / us * 1e-3,
        "path": stats.get("path", ""),
        "selection": stats.get("selection", ""),
    }
    if found is not None:
        gather_us = found.us("gather")
        row |= {
            "gather_us": gather_us,
            "gather_gb_per_s": items * row_bytes / gather_us * 1e-3 if gather_us else 0.0,
            "kernels_us": found.by_name(),
        }
    return row


def device_rows(gpu: Gpu) -> Rows:
    """Tier device: the gather against the bare one of the same rows and batch."""
    rows = []
    for row_bytes in (64, 68, 256, 1024, 4096, 65536):
        buffer = filled(gpu, "device", row_bytes, gpu.size(4096 * MIB, 4 * MIB))
        for batch in (64 * MIB, 256 * MIB) if row_bytes == 256 else (256 * MIB,):
            found = deliver(gpu, buffer, row_bytes, gpu.size(batch, 65536), None)
            rows.append({"tier": "device", **found})
        buffer.close()
        forget(gpu)
    return rows


def pinned_rows(gpu: Gpu) -> Rows:
    """Tier pinned: zero-copy, staged, and what `auto` makes of it."""
    rows = []
    for row_bytes in (64, 128, 256, 512, 1024, 4096, 16384):
        buffer = filled(gpu, "pinned", row_bytes, gpu.size(8192 * MIB, 4 * MIB))
        wanted = [("zero_copy", 64, 2), ("zero_copy", 64, 4), ("zero_copy", 256, 2)]
        wanted += [("auto", 64, 2), ("staged", 64, 2)]
        if row_bytes in (64, 1024):
            wanted.append(("auto", 1, 2))
        for path, mib, prefetch in wanted:
            kernels = path == "zero_copy"
            size = gpu.size(mib * MIB, 65536)
            found = deliver(gpu, buffer, row_bytes, size, path, prefetch=prefetch, kernels=kernels)
            rows.append({"tier": "pinned", "asked": path, **found})
        buffer.close()
        forget(gpu)
    return rows


def framework_rows(gpu: Gpu) -> Rows:
    """What one writes by hand: `tensor[indices].to("cuda")`, of a plain tensor in host memory."""
    pool = torch.empty(gpu.size(8192 * MIB, 4 * MIB) // MIB * MIB, dtype=torch.uint8)
    block = torch.randint(0, 256, (gpu.size(64 * MIB, MIB),), dtype=torch.uint8)
    for first in range(0, len(pool), len(block)):
        pool[first : first + len(block)] = block[: len(pool) - first]
    rows = []
    for row_bytes in (64, 128, 256, 512, 1024, 4096):
        table = pool.view(-1, row_bytes)
        items = gpu.size(64 * MIB, 65536) // row_bytes
        indices = [torch.randint(0, len(table), (items,)) for _ in range(3)]
        turn = [0]

        def work(table: Any = table, indices: Any = indices, turn: Any = turn) -> Any:
            turn[0] += 1
            return table[indices[turn[0] % 3]].to(gpu.device)

        us = gpu.wall_us(work, budget_s=0.3, rounds=3)
        bytes_moved = items * row_bytes
        rows.append(
            {
                "row_bytes": row_bytes,
                "batch_bytes": bytes_moved,
                "us": us,
                "gb_per_s": bytes_moved / us * 1e-3,
            }
        )
    return rows


def forget(gpu: Gpu) -> None:
    gc.collect()
    if not gpu.rehearsal:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
