#!/usr/bin/env python3
"""Measure small batches of a group: the time of one between two processes of this host, and the
rounds, messages and bytes of one by number of ranks.

    python benchmarks/group_batches.py --json out.json        2 processes; 8, 64 and 512 threads
    python benchmarks/group_batches.py --threads ''           the processes alone

Processes draw by shared memory, a thread each, without prefetch. Threads are ranks of one process,
eight a node, whose transports count what goes by them (gear.emu.emulate): a round is a call that
all ranks make; messages and bytes are what a rank gives others, on the mean. With `read by pointer`
the ranks of a node read each other's rows; with `sent` each is a node for itself.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import machine
import numpy as np

import gear
import gear.emu as emu

ITEMS, ROW_BYTES, STEPS = 256, 128, 20_000
WARM, BATCHES, ROUNDS = 200, 2_000, 5
FEW = 3  # batches of threads
SCHEMA = gear.Schema([gear.Column("row", (ROW_BYTES,), "uint8")])
LAWS = {
    "uniform": gear.Uniform(),
    "prioritised with update": gear.Weighted(),
}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", default="8,64,512", metavar="A,B", help="%(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    chosen = options()
    if chosen.rank:
        with gear.Group.from_env(timeout_s=60) as group:
            print(json.dumps({name: timed(group, name) for name in LAWS}))
        return 0
    found: dict[str, Any] = {"machine": machine.facts(), "processes": processes()}
    for name, told in found["processes"].items():
        low, high = told["low"], told["high"]
        print(
            f"two processes, {ITEMS} items, {name:24} {told['us']:7.1f} us ({low:.1f}..{high:.1f})"
        )
    found["threads"] = [
        row for ranks in map(int, filter(None, chosen.threads.split(","))) for row in counted(ranks)
    ]
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def processes() -> dict[str, dict[str, float]]:
    """By law: the slower rank's median of a batch in us, and the range of the rounds' medians."""
    met = {**os.environ, "GEAR_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2"}
    met |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank"],
            env={**met, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit("a rank failed: see above")
    told = [json.loads(one.splitlines()[-1]) for one in said]
    return {name: max((one[name] for one in told), key=lambda one: one["us"]) for name in LAWS}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def timed(group: gear.Group, law: str) -> dict[str, float]:
    with filled(group, STEPS) as buffer, loader(buffer, law) as batches:
        for _ in range(WARM):
            step(buffer, batches, law)
        rounds = []
        for _ in range(ROUNDS):
            group.barrier()
            took = []
            for _ in range(BATCHES):
                began = time.perf_counter()
                step(buffer, batches, law)
                took.append(1e6 * (time.perf_counter() - began))
            rounds.append(took)
        group.barrier()
    medians = [median(took) for took in rounds]
    every = quantiles([one for took in rounds for one in took], n=20)
    return {"us": median(medians), "low": min(medians), "high": max(medians), "p95": every[-1]}


def counted(ranks: int) -> list[dict[str, Any]]:
    """Prints and returns rows of rounds, messages and bytes."""
    rows = []
    for name in LAWS:
        for way, per_node in {"read by pointer": 8, "sent": 1}.items():
            for locality in ("first", "off"):
                groups = gear.Group.loopback(ranks, ranks_per_node=per_node)
                with ThreadPoolExecutor(ranks) as pool:
                    told = list(pool.map(given, groups, repeat(name), repeat(locality)))
                row = {"ranks": ranks, "law": name, "rows": way, "locality": locality}
                row |= {key: sum(one[key] for one in told) / ranks for key in told[0]}
                print(
                    f"{ranks:4} ranks, {name:24} {way:16} locality {locality:6}"
                    f"{row['rounds']:5.1f} rounds {row['messages']:8.1f} messages"
                    f"{row['bytes']:10.0f} bytes",
                    flush=True,
                )
                rows.append(row)
    return rows


def given(group: gear.Group, law: str, locality: str) -> dict[str, float]:
    """Of a batch, on the mean of a few, behind the first. Collective."""
    traffic = emu.emulate(group)
    with filled(group, ITEMS) as buffer, loader(buffer, law, locality) as batches:
        step(buffer, batches, law)
        step(buffer, batches, law)
        group.barrier()
        before = totals(traffic)
        for _ in range(FEW):
            step(buffer, batches, law)
        after = totals(traffic)
        group.barrier()
    return {key: (after[key] - before[key]) / FEW for key in after}


def totals(traffic: Any) -> dict[str, float]:
    tallies = traffic.tallies().values()
    return {
        "rounds": sum(one["calls"] for one in tallies),
        "messages": sum(one["messages"] for one in tallies),
        "bytes": sum(one["bytes"] for one in tallies),
    }


def filled(group: gear.Group, steps: int) -> gear.ReplayBuffer:
    buffer = gear.ReplayBuffer(SCHEMA, steps, tier="shared", group=group)
    with buffer.writer() as writer:
        rows = np.random.default_rng(group.rank).integers(0, 256, (steps, ROW_BYTES), np.uint8)
        writer.extend(row=rows)
        writer.end_episode(terminated=True)
    return buffer


def loader(buffer: gear.ReplayBuffer, law: str, locality: str = "first") -> Any:
    return buffer.loader(
        ITEMS,
        sampler=LAWS[law],
        outputs={"row": gear.Step()},
        framework="numpy",
        prefetch=0,
        seed=1,
        locality=locality,
    )


def step(buffer: gear.ReplayBuffer, batches: Any, law: str) -> None:
    batch = next(batches)
    if law != "uniform":
        buffer.update(batch.ids, batch.weights)


if __name__ == "__main__":
    sys.exit(main())
