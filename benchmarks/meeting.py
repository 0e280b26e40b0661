#!/usr/bin/env python3
"""Measure what the ranks' meeting costs the store of rank 0: questions, seconds, CPU.

    python benchmarks/meeting.py                          64, 256 and 1,024 ranks, all at once
    python benchmarks/meeting.py --spread-s 20            one after the other, in 20 s
    python benchmarks/meeting.py --ranks 64 --said-bytes 500 --json out.json

A torch TCPStore serves in a process of its own. Ranks are threads of a few others, each with its
own connection: they come at once or by and by, take their places, wait until all have come and read
what all said, as the ranks of a launch do (gear/distributed/channels/roster.py). Their seconds are
this machine's, which plays all of the ranks; the server's CPU seconds are what rank 0 would bear.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import machine
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from gear.distributed.channels.roster import said_by_all, wait_for_places

PLAYERS = 16  # processes
ADDRESS = "127.0.0.1"
QUESTIONS = ("add", "check", "compare_set", "get", "multi_get", "set")


class Counted:
    """A store that counts what it is asked."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.store, name)
        if name not in QUESTIONS:
            return call

        def counted(*arguments: Any) -> Any:
            self.asked[name] += 1
            return call(*arguments)

        return counted


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", default="64,256,1024", metavar="A,B", help="%(default)s")
    parser.add_argument("--said-bytes", type=int, default=300, metavar="N", help="of a rank")
    parser.add_argument(
        "--spread-s", type=float, default=0.0, metavar="S", help="from the first rank to the last"
    )
    parser.add_argument("--timeout-s", type=float, default=300.0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    return parser.parse_args(arguments)


def connect(port: int, serves: bool, timeout_s: float) -> Any:
    wait = timedelta(seconds=timeout_s)
    return TCPStore(ADDRESS, port, None, serves, wait, False)


def serve(link: Any, timeout_s: float) -> None:
    """Tells its port; then, as long as it is asked, its CPU seconds."""
    store = connect(0, True, timeout_s)
    link.send(store.port)
    while link.recv():
        link.send(time.process_time())


def play(
    ranks: range, chosen: argparse.Namespace, size: int, port: int, gate: Barrier, link: Any
) -> None:
    """Plays `ranks`; sends when the last of them knew all, and what they asked."""
    stores = [Counted(connect(port, False, chosen.timeout_s)) for _ in ranks]
    known = [0.0] * len(ranks)
    here = threading.Barrier(len(ranks) + 1)

    def be(place: int, rank: int) -> None:
        store = stores[place]
        here.wait()
        time.sleep(chosen.spread_s * rank / size)
        deadline = time.monotonic() + chosen.timeout_s
        store.compare_set(f"rank {rank}", "", json.dumps({"member": "m" * chosen.said_bytes}))
        absent = wait_for_places(store, size, deadline)
        if not absent and len(said_by_all(store)) == size:
            known[place] = time.monotonic()

    threads = [threading.Thread(target=be, args=each) for each in enumerate(ranks)]
    for thread in threads:
        thread.start()
    gate.wait()
    here.wait()
    for thread in threads:
        thread.join()
    asked: Counter[str] = sum((store.asked for store in stores), Counter())
    link.send((min(known), max(known), asked))
    gate.wait()  # a store that loses its clients works too


def measure(size: int, chosen: argparse.Namespace) -> dict[str, Any]:
    """One meeting of `size` ranks."""
    context = multiprocessing.get_context("fork")  # torch takes its time to be imported, once
    server, far_end = context.Pipe()
    processes: list[Any] = [context.Process(target=serve, args=(far_end, chosen.timeout_s))]
    processes[0].start()
    port = server.recv()
    players = min(PLAYERS, size)
    gate = context.Barrier(players + 1)
    links = []
    for player in range(players):
        link, far_end = context.Pipe()
        ranks = range(player * size // players, (player + 1) * size // players)
        arguments = (ranks, chosen, size, port, gate, far_end)
        processes.append(context.Process(target=play, args=arguments))
        processes[-1].start()
        links.append(link)

    def cpu_s() -> float:
        server.send(True)
        return float(server.recv())

    gate.wait()
    begun, before = time.monotonic(), cpu_s()
    told = [link.recv() for link in links]
    used = cpu_s() - before
    gate.wait()
    server.send(False)
    for process in processes:
        process.join()
    if min(first for first, _, _ in told) == 0:
        raise SystemExit(
            f"not all of {size} ranks came to know each other in {chosen.timeout_s:g} s"
        )
    seconds = max(last for _, last, _ in told) - begun
    asked: Counter[str] = sum((each for _, _, each in told), Counter())
    return {
        "ranks": size,
        "seconds": seconds,
        "questions": asked.total(),
        "questions_per_rank": asked.total() / size,
        "questions_per_second": asked.total() / seconds,
        "asked": dict(asked),
        "server_cpu_s": used,
        "said_bytes": chosen.said_bytes,
        "spread_s": chosen.spread_s,
    }


def main(arguments: list[str] | None = None) -> int:
    chosen = options(arguments)
    facts = machine.facts()
    results = []
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "ranks": lambda one: str(one["ranks"]),
        "all know all, s": lambda one: f"{one['seconds']:.2f}",
        "questions": lambda one: str(one["questions"]),
        "a rank": lambda one: f"{one['questions_per_rank']:.1f}",
        "a second": lambda one: f"{one['questions_per_second']:.0f}",
        "server's CPU, s": lambda one: f"{one['server_cpu_s']:.2f}",
    }
    print("  ".join(f"{name:>15}" for name in columns))
    for size in map(int, chosen.ranks.split(",")):
        results.append(measure(size, chosen))
        print("  ".join(f"{text(results[-1]):>15}" for text in columns.values()), flush=True)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({"machine": facts, "meetings": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
