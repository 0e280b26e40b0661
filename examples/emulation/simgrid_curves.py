#!/usr/bin/env python3
"""What collectives take on a network that nobody has, by SimGrid: for `gear emu run --model`.

    python3 simgrid_curves.py PLATFORM.xml --ranks 8,64 --out curves.csv
    gear emu run -N 64 --per-node 1 --model curves.csv -- python train.py

PLATFORM.xml describes hosts and links as SimGrid has them (fat_tree.xml beside this). Each host is
a node with one rank, and a group is the first of them. SimGrid knows no NCCL: it simulates the
messages of the algorithms below over shared links, at the speeds that the file gives: take such as
were measured. Needs the package simgrid (Debian: python3-simgrid), and no GEAR.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from typing import Any

from simgrid import Actor, Comm, Engine  # type: ignore[import-not-found]

Hosts = list[Any]
Messages = list[tuple[Any, Any, int]]  # from, to, bytes: all at once

# Latencies and bandwidths, without what TCP would lose, and what answers to messages would take.
AS_THE_FILE_SAYS = [
    f"--cfg=network/{what}" for what in ("model:CM02", "TCP-gamma:0", "crosstraffic:0")
]


def ring(hosts: Hosts, size: int) -> Messages:
    """Each to the next."""
    return [(host, hosts[(i + 1) % len(hosts)], size) for i, host in enumerate(hosts)]


def pairs(hosts: Hosts, size: int) -> Messages:
    """Each to each other."""
    return [(one, other, size) for one in hosts for other in hosts if one is not other]


def tree(hosts: Hosts, size: int) -> list[Messages]:
    """Rounds of a binomial tree: in each, all who have it send to one who has not."""
    rounds, have = [], 1
    while have < len(hosts):
        new = range(min(have, len(hosts) - have))
        rounds.append([(hosts[i], hosts[have + i], size) for i in new])
        have *= 2
    return rounds


def dissemination(hosts: Hosts) -> list[Messages]:
    """Rounds of a barrier: each to the one 1, 2, 4... further."""
    steps = [1 << power for power in range((len(hosts) - 1).bit_length())]
    return [
        [(host, hosts[(i + step) % len(hosts)], 8) for i, host in enumerate(hosts)]
        for step in steps
    ]


def rounds_of(operation: str, hosts: Hosts, size: int) -> tuple[list[Messages], int]:
    """Rounds of messages, and how often they are played: those of a ring are all alike. `size` is
    in bytes, as gear.emu.OPERATIONS counts them."""
    part, others = size // len(hosts), hosts[1:]
    if operation in ("all_reduce", "all_gather", "reduce_scatter"):
        return [ring(hosts, part)], len(others) * (2 if operation == "all_reduce" else 1)
    if operation == "all_to_all":
        return [pairs(hosts, part)], 1
    if operation in ("broadcast", "reduce"):
        return tree(hosts, size), 1
    if operation == "gather":
        return [[(one, hosts[0], part) for one in others]], 1
    if operation == "scatter":
        return [[(hosts[0], one, part) for one in others]], 1
    if operation == "send":
        return [[(hosts[0], hosts[-1], size)]], 1
    return dissemination(hosts), 1


OPERATIONS = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"),
    *("gather", "scatter", "send", "barrier"),
)


def seconds_of(rounds: list[Messages]) -> float:
    """That these take, one after the other."""
    began: float = Engine.clock
    for messages in rounds:
        Comm.wait_all([Comm.sendto_async(a, b, max(1, size)) for a, b, size in messages])
    return float(Engine.clock - began)


def simulate(hosts: Hosts, counts: list[int], sizes: list[int], rows: list[Any]) -> None:
    """The only actor: it has all messages sent."""
    for ranks in counts:
        for operation in OPERATIONS:
            longest = 0.0
            for size in [0] if operation == "barrier" else sizes:
                rounds, times = rounds_of(operation, hosts[:ranks], size)
                longest = max(longest, seconds_of(rounds) * times)
                rows.append((operation, ranks, ranks, size, longest * 1e6, "given", "SimGrid"))


def number(host: Any) -> int:
    """In the name of a host."""
    return int("0" + "".join(filter(str.isdigit, host.name)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("platform", help="a file of SimGrid's")
    parser.add_argument("--ranks", default="8,64", help="of the groups")
    parser.add_argument("--smallest", type=int, default=1 << 10, metavar="BYTES")
    parser.add_argument("--largest", type=int, default=1 << 30, metavar="BYTES")
    parser.add_argument("--out", required=True, metavar="FILE")
    given = parser.parse_args()
    engine = Engine([sys.argv[0], *AS_THE_FILE_SAYS, "--log=root.thres:error"])
    engine.load_platform(given.platform)
    hosts = sorted(engine.all_hosts, key=number)
    counts = [int(count) for count in given.ranks.split(",")]
    if min(counts) < 2 or max(counts) > len(hosts):
        sys.exit(f"--ranks {given.ranks}: 2 to {len(hosts)}, the hosts of {given.platform}")
    sizes = [given.smallest]
    while sizes[-1] * 2 <= given.largest:
        sizes.append(sizes[-1] * 2)
    rows: list[Any] = []
    Actor.create("collectives", hosts[0], simulate, hosts, counts, sizes, rows)
    engine.run()
    with open(f"{given.out}.saving", "w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(("operation", "ranks", "nodes", "bytes", "us", "basis", "source"))
        lines.writerows(rows)
    os.replace(f"{given.out}.saving", given.out)
    print(f"{given.out}: {len(rows)} points by SimGrid")


if __name__ == "__main__":
    main()
