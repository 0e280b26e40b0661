#!/usr/bin/env python3
"""One rank of buffers over several GPUs: plays the cases of its argument and checks every batch.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \\
        group_worker.py '[{"tier": "device"}]'

Beside the buffer under test the ranks keep another with the same steps in host memory, whose
loader draws the same: every batch must be equal to its batch, bit by bit. Prints, for each case,
how many were, and what the loader says of the bytes.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from numbered import SCHEMA, check, outputs, write
from places import as_numpy
from reference import difference

import gear

RANK_STRIDE = 10_000_000  # numbers of rank r: r * RANK_STRIDE + 1, + 2, ...
SAMPLERS: dict[str, Callable[[], gear.Sampler]] = {
    "uniform": gear.Uniform,
    "weighted": lambda: gear.Weighted(alpha=0.6, beta=0.4),
    "sequential": lambda: gear.Sequential(shuffle=True),
    "topk": gear.TopK,
    "fifo": gear.Fifo,
}


@dataclass(frozen=True)
class Case:
    """What is played.

    Attributes:
        tier: "device" or "pinned", of the buffer under test.
        empty: this rank stores nothing; -1: all ranks do.
        batches: how many; between them steps come in and priorities change.
        dies: this rank ends in the middle, without a word; -1: none does.
        moves: of tier "pinned": the loader under test is the buffer's second, and this rank has it
            on another GPU than its first one; priorities come from GPUs. -1: it is the only one.
        tells: this rank alone changes priorities; -1: all ranks do.
        rehearsal: without a GPU, both buffers in host memory.
    """

    tier: str = "device"
    sampler: str = "uniform"
    locality: str = "first"
    packed: bool = False
    nccl: bool = False
    empty: int = -1
    batches: int = 12
    batch_size: int = 97
    dies: int = -1
    moves: int = -1
    tells: int = -1
    rehearsal: bool = False


def device_of(group: gear.Group, case: Case) -> int:
    """GPU of this rank, by its number: nodes may be names for one machine."""
    if case.rehearsal:
        return 0
    return (group.rank + (case.moves == group.rank)) % gear.device.visible_device_count()


def tier_of(group: gear.Group, case: Case) -> str:
    if case.rehearsal:
        return "shared"
    return f"device:{device_of(group, case)}" if case.tier == "device" else case.tier


def buffers(group: gear.Group, case: Case) -> list[gear.ReplayBuffer]:
    """Under test, and the one to compare with."""
    return [
        gear.ReplayBuffer(SCHEMA, 3000, page_steps=7, tier=tier, group=group)
        for tier in (tier_of(group, case), "shared")
    ]


def destination(group: gear.Group, case: Case) -> dict[str, Any]:
    """Of pinned steps by the GPU's own reads: only loaders of that form exchange by kernels."""
    if case.rehearsal:
        return {"device": "cpu"}
    path = {"path": "zero_copy"} if case.tier == "pinned" else {}
    return {"device": f"cuda:{device_of(group, case)}", **path}


def loaders(
    both: list[gear.ReplayBuffer], group: gear.Group, case: Case, framework: str
) -> list[gear.Loader]:
    shared: dict[str, Any] = {
        "sampler": SAMPLERS[case.sampler](),
        "outputs": outputs(-2, 3),
        "packed": case.packed,
        "seed": 11,
        "locality": case.locality,
    }
    return [
        both[0].loader(
            case.batch_size,
            framework=framework,
            nccl=case.nccl and not case.rehearsal,
            **destination(group, case),
            **shared,
        ),
        both[1].loader(case.batch_size, framework="numpy", **shared),
    ]


def bits(value: Any) -> np.ndarray:
    return as_numpy(value) if hasattr(value, "cpu") else np.asarray(value)


def play(group: gear.Group, case: Case, framework: str = "torch") -> dict[str, Any]:
    first = 1 + group.rank * RANK_STRIDE
    lengths = [400, 3, 900, 70 + 13 * group.rank]
    same = 0
    both = buffers(group, case)
    if group.rank != case.empty:
        for buffer in both:
            write(buffer, first, lengths, np.random.default_rng(group.rank))
    first_one = None
    if case.moves >= 0:
        stays = destination(group, replace(case, moves=-1))
        first_one = both[0].loader(case.batch_size, sampler=SAMPLERS[case.sampler](), **stays)
        next(first_one)
    ours, theirs = loaders(both, group, case, framework)
    for turn in range(case.batches):
        if turn == case.batches // 2 and case.dies == group.rank:
            print(json.dumps([{"died": True}]), flush=True)
            os._exit(0)  # closes nothing
        try:
            batch, expected = next(ours, None), next(theirs, None)
        except gear.TransportError as error:
            if case.dies < 0:
                raise
            return {"error": str(error)}
        if batch is None or expected is None:
            assert batch is expected, f"batch {turn}: one epoch ends before the other"
            continue
        for name in ("ids", "probabilities", "weights"):
            got = bits(getattr(batch, name))
            assert (found := difference(got, getattr(expected, name))) is None, (turn, name, found)
        for name in expected:
            assert (found := difference(bits(batch[name]), expected[name])) is None, (
                turn,
                name,
                found,
            )
        check({name: bits(batch[name]) for name in batch})
        same += 1
        priorities = (expected.ids % 31 + turn).astype(np.float32) / 8
        given: list[Any] = [expected.ids, priorities]
        if case.moves >= 0 and not case.rehearsal:
            import torch

            given = [torch.from_numpy(each).to(stays["device"]) for each in given]
        if case.tells in (-1, group.rank):
            both[0].update(*given)
            both[1].update(expected.ids, priorities)
        if turn % 4 == 3 and case.sampler != "sequential" and group.rank != case.empty:
            start = first + 1_000_000 * (1 + turn)
            for buffer in both:
                write(buffer, start, [300, 5, 211], np.random.default_rng([turn, group.rank]))
    stats = ours.stats()
    for loader in (ours, theirs, first_one):
        if loader is not None:
            loader.close()
    for buffer in both:
        buffer.close()
    return {"same": same, **{k: v for k, v in stats.items() if k.endswith("bytes") or k == "path"}}


def main() -> None:
    cases = [Case(**case) for case in json.loads(sys.argv[1])]
    faulthandler.dump_traceback_later(100, exit=True)  # before who started it gives up
    group = gear.Group.from_env(timeout_s=60)
    if not cases[0].rehearsal:
        import torch

        torch.cuda.set_device(device_of(group, cases[0]))
    found = []
    for case in cases:
        print(case, flush=True)  # which one failed
        found.append(play(group, case))
    print(json.dumps(found), flush=True)
    if cases[-1].dies >= 0:
        os._exit(0)  # nobody is there to close it with
    group.barrier()
    group.close()


if __name__ == "__main__":
    main()
