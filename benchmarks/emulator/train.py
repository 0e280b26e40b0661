#!/usr/bin/env python3
"""Trains a model of the evaluation set, as any program of torch.distributed does: nothing here
knows of emulation.

    torchrun --nproc-per-node 2 benchmarks/emulator/train.py resnet152
    gear emu run -N 512 --per-node 8 -- python benchmarks/emulator/train.py t5-large --by fsdp2

Prints one line of JSON on rank 0: the milliseconds of each step, by the GPU's events where it has
one, without the first ten; the first and the last loss; the most bytes of torch's allocator.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from models import MODELS, Task
from torch import nn

cuda: Any = torch.cuda  # of which much has no types

WARM = 10  # steps: cuDNN and compilers choose, allocators grow


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--by", choices=("ddp", "fsdp2"), default="ddp", help="%(default)s")
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    parser.add_argument("--steps", type=int, default=50, metavar="N", help="%(default)s")
    parser.add_argument("--small", action="store_true", help="of the same shape, for CPUs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what is printed here, too")
    return parser.parse_args()


def main() -> None:
    chosen = options()
    on_gpu = cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if on_gpu else None
    if device is not None:
        cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    torch.manual_seed(1)
    where = device or torch.device("cpu")
    task = MODELS[chosen.model](chosen.small)
    model = spread(task, chosen.by, where)
    if chosen.compile:
        model.compile()
    torch.manual_seed(2 + dist.get_rank())
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=on_gpu)
    batch = task.batch(where)
    losses: list[Any] = []
    marks: list[Any] = [mark(on_gpu)]
    for _ in range(WARM + chosen.steps):
        optimiser.zero_grad()
        with torch.autocast(where.type, torch.bfloat16, enabled=chosen.by == "ddp"):
            loss = task.loss(model, batch)
        torch.autograd.backward(loss)
        optimiser.step()
        losses.append(loss.detach())
        marks.append(mark(on_gpu))
        if len(marks) % 4 == 0 and on_gpu:
            marks[-3].synchronize()  # as a program that logs: the host is a few steps ahead
    if on_gpu:
        cuda.synchronize()
    if dist.get_rank() == 0:
        said = {
            "ms": [between(*pair) for pair in zip(marks[WARM:], marks[WARM + 1 :], strict=False)],
            "losses": [losses[0].item(), losses[-1].item()],
            "parameters": sum(one.numel() for one in task.model.parameters()),
            "peak": cuda.max_memory_allocated() if on_gpu else 0,
        }
        print(json.dumps(said), flush=True)
        if chosen.json:
            chosen.json.write_text(json.dumps(said) + "\n")
    dist.destroy_process_group()


def spread(task: Task, by: str, device: torch.device) -> nn.Module:
    task.model.to(device)
    if by == "ddp":
        on = [device.index] if device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(task.model, device_ids=on)
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for block in task.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(task.model, mp_policy=policy)
    return task.model


def mark(on_gpu: bool) -> Any:
    if not on_gpu:
        return time.perf_counter()
    event = cuda.Event(enable_timing=True)
    event.record()
    return event


def between(one: Any, other: Any) -> float:
    return 1e3 * (other - one) if isinstance(one, float) else float(one.elapsed_time(other))


if __name__ == "__main__":
    main()
