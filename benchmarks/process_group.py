#!/usr/bin/env python3
"""Measure all_reduce on gear_mpi, on gloo and by raw MPI (mpi4py), in the same ranks and one run.

    mpirun -n 2 python benchmarks/process_group.py --json out.json

The three take turns, round by round, on float32. A call's time is that of its round over the number
of calls; a figure is the median over the rounds, with the range. A ratio is taken within a round,
so that what slows all three cancels. "alone" is an all_reduce of four bytes in a group of one rank:
what torch and gear_mpi cost without a message; "nothing" is torch's own backend that does nothing,
so the difference is gear_mpi's overhead. Rank 0 prints and writes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import numpy as np
import repeats
import report
import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # the backend "fake"
from mpi4py import MPI

import gear_mpi

SIZES = (4, 4 << 10, 32 << 10, 256 << 10, 4 << 20, 32 << 20)
TURN_S = 0.05  # of one contestant in a round, about
CONTESTANTS = ("gear_mpi", "gloo", "mpi4py")
Call = Callable[[], object]


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="%(default)s")
    parser.add_argument("--most", type=int, default=SIZES[-1], metavar="BYTES", help="largest size")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    chosen = options(arguments)
    torch.set_num_threads(1)
    facts = machine.facts()
    dist.init_process_group(gear_mpi.NAME)
    gloo = dist.new_group(backend="gloo")
    own, nothing = (
        [dist.new_group([rank], backend=name) for rank in range(dist.get_world_size())]
        for name in (gear_mpi.NAME, "fake")
    )
    rank = dist.get_rank()
    rows = [compared(size, gloo, chosen.rounds) for size in SIZES if size <= chosen.most]
    one = torch.ones(1)
    alone = rounds(
        {
            "alone": lambda: dist.all_reduce(one, group=own[rank]),
            "nothing": lambda: dist.all_reduce(one, group=nothing[rank]),
        },
        chosen.rounds,
    )
    overhead = [a - b for a, b in zip(alone["alone"], alone["nothing"], strict=True)]
    if dist.get_rank() == 0:
        versions = {"torch": torch.__version__, "mpi": MPI.Get_library_version().split(",")[0]}
        outcome = {
            "machine": facts,
            "versions": versions,
            "ranks": dist.get_world_size(),
            "results": rows,
            "alone_us": repeats.span(alone["alone"]),
            "nothing_us": repeats.span(alone["nothing"]),
            "overhead_us": repeats.span(overhead),
        }
        show(outcome)
        if chosen.json:
            chosen.json.write_text(json.dumps(outcome, indent=1) + "\n")
    dist.destroy_process_group()
    return 0


def compared(size: int, gloo: Any, num_rounds: int) -> dict[str, Any]:
    """The figures of an all_reduce of `size` bytes, in microseconds a call."""
    tensor = torch.zeros(size // 4)
    sent, received = np.zeros(size // 4, np.float32), np.empty(size // 4, np.float32)
    calls: dict[str, Call] = {
        "gear_mpi": lambda: dist.all_reduce(tensor),
        "gloo": lambda: dist.all_reduce(tensor, group=gloo),
        "mpi4py": lambda: MPI.COMM_WORLD.Allreduce(sent, received),
    }
    times = rounds(calls, num_rounds)
    faster = {
        name: repeats.span([b / a for a, b in zip(times["gear_mpi"], times[name], strict=True)])
        for name in CONTESTANTS[1:]
    }
    return {
        "bytes": size,
        "us": {name: repeats.span(values) for name, values in times.items()},
        "rate_over": faster,
    }


def rounds(calls: dict[str, Call], num_rounds: int) -> dict[str, list[float]]:
    """Microseconds a call of each, by round."""
    often = {name: how_often(call) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(num_rounds):
        for name, call in calls.items():
            MPI.COMM_WORLD.Barrier()
            found[name].append(timed(call, often[name]))
    return found


def how_often(call: Call) -> int:
    """Calls that take about TURN_S; the same on all ranks. Warms up."""
    timed(call, 3)
    us = MPI.COMM_WORLD.allreduce(timed(call, 5), MPI.MAX)
    return max(3, min(2000, int(TURN_S * 1e6 / us)))


def timed(call: Call, times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times * 1e6


def show(outcome: dict[str, Any]) -> None:
    head = ["all_reduce", *(f"{name} us" for name in CONTESTANTS)]
    head += [f"rate over {name}" for name in CONTESTANTS[1:]]
    table = [
        [
            f"{row['bytes']:,} B",
            *(report.ranged(row["us"][name]) for name in CONTESTANTS),
            *(report.ranged(row["rate_over"][name]) for name in CONTESTANTS[1:]),
        ]
        for row in outcome["results"]
    ]
    title = f"{outcome['ranks']} ranks, {outcome['versions']['mpi']}, torch "
    report.table(title + outcome["versions"]["torch"], head, table)
    for name in ("alone", "nothing", "overhead"):
        print(f"{name}: {report.ranged(outcome[name + '_us'])} us")


if __name__ == "__main__":
    sys.exit(main())
