#!/usr/bin/env python3
"""Measure what messages between ranks cost, by each transport that carries them.

    mpirun -n 2 python benchmarks/messages.py --transports mpi,shared_memory
    torchrun --nproc-per-node 4 benchmarks/messages.py --transports shared_memory --json out.json

An allgather tells all ranks a few bytes of each: control. In an exchange every rank sends as many
bytes to each other one, which does not know how many come. Both are called from Python, which
copies what is sent and what came. The transports take turns, round by round; a call's time is that
of its round over the number of calls, and a figure is the median over the rounds, with the range.
CPU time is of rank 0's process, whose waits may spin. Rank 0 prints and writes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import repeats

import gear

TOLD = (8, 4 << 10)  # bytes of a rank in an allgather
SENT = (64 << 10, 1 << 20, 8 << 20)  # to each other rank in an exchange
TURN_S = 0.05  # of one transport in a round, about
Call = Callable[[], object]


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--transports", default="auto", metavar="A,B", help="%(default)s")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="%(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    chosen = options(arguments)
    facts = machine.facts()
    with gear.Group.from_env() as group:
        groups = [by_transport(group, name) for name in chosen.transports.split(",")]
        carriers = {each.transport_name: each.transport() for each in groups}
        rows = [compared(group, work, carriers, chosen.rounds) for work in works(group)]
    if group.rank == 0:
        print(f"{group.size} ranks on {group.num_nodes} node(s); us a call, and CPU us of rank 0")
        for row in rows:
            for name, taken in row["taken"].items():
                wall, cpu = taken["wall_us"], taken["cpu_us"]
                print(
                    f"{row['work']:22} {name:14} {wall['median']:10.1f} "
                    f"({wall['min']:.1f} to {wall['max']:.1f})  {cpu['median']:10.1f}"
                )
        if chosen.json is not None:
            made = {"machine": facts, "ranks": group.size, "works": rows}
            chosen.json.write_text(json.dumps(made, indent=1) + "\n")
    return 0


def by_transport(group: gear.Group, name: str) -> gear.Group:
    """The same ranks. Collective."""
    return gear.Group(group.channel(), group.members, launcher=group.launcher, transport=name)


def works(group: gear.Group) -> list[tuple[str, Callable[[Any], Call]]]:
    """(name, what makes the call of a transport)."""

    def told(num_bytes: int) -> Callable[[Any], Call]:
        mine = bytes(num_bytes)
        return lambda transport: lambda: transport.allgather(mine)

    def sent(num_bytes: int) -> Callable[[Any], Call]:
        to = [b"" if rank == group.rank else bytes(num_bytes) for rank in range(group.size)]
        return lambda transport: lambda: transport.exchange(to)

    made = [(f"allgather {size:,} B", told(size)) for size in TOLD]
    return made + [(f"exchange {size >> 10:,} KiB", sent(size)) for size in SENT]


def compared(
    group: gear.Group,
    work: tuple[str, Callable[[Any], Call]],
    carriers: dict[str, Any],
    rounds: int,
) -> dict[str, Any]:
    """One kind of call by all transports, in turns. Collective."""
    calls = {name: work[1](transport) for name, transport in carriers.items()}
    turns = {name: group.exchange(a_turn(call))[0] for name, call in calls.items()}
    wall: dict[str, list[float]] = {name: [] for name in calls}
    cpu: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            group.barrier()
            begun, spent = time.perf_counter(), time.process_time()
            for _ in range(turns[name]):
                call()
            wall[name].append((time.perf_counter() - begun) / turns[name] * 1e6)
            cpu[name].append((time.process_time() - spent) / turns[name] * 1e6)
    taken = {
        name: {"wall_us": repeats.span(wall[name]), "cpu_us": repeats.span(cpu[name])}
        for name in calls
    }
    return {"work": work[0], "calls_a_round": turns, "taken": taken}


def a_turn(call: Call) -> int:
    """How many calls take about TURN_S, by the second half of a few. Collective."""
    for _ in range(4):
        call()
    begun = time.perf_counter()
    for _ in range(4):
        call()
    return max(4, int(TURN_S * 4 / (time.perf_counter() - begun)))


if __name__ == "__main__":
    raise SystemExit(main())
