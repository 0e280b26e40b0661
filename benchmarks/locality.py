#!/usr/bin/env python3
"""Measure how many bytes a global batch moves between ranks and nodes, with locality first and off.

    python benchmarks/locality.py --json out.json        2, 4, 8, 64 and 512 ranks, nodes of 8
    python benchmarks/locality.py --ranks 2,16 --batches 5
    python benchmarks/locality.py --require              exit 1 unless 10 times fewer bytes move

Ranks are threads of this process (gear.Group.loopback), each with its buffer, filled alike, and
its loader of uniform batches; bytes are what the loaders count of the batches that they delivered.
Beside them stands what is to be expected of random draws. "Fewer" compares the bytes between nodes,
where there are several, else between ranks. Times are of all ranks on this machine's cores, and say
nothing of a cluster.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import machine
import numpy as np
import report

import gear

SCHEMA = gear.Schema(
    [
        gear.Column("obs", (17,), "float32"),
        gear.Column("action", (6,), "float32"),
        gear.Column("reward", (), "float32"),
    ]
)
STEP_BYTES = 4 * (17 + 6 + 1)
EPISODES, EPISODE_STEPS = 8, 100  # of every rank
LOCALITIES = ("first", "off")
REQUIRED_RATIO = 10.0
KINDS = ("local", "same_node", "remote")


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", default="2,4,8,64,512", metavar="A,B", help="%(default)s")
    parser.add_argument("--ranks-per-node", type=int, default=8, metavar="N", help="%(default)s")
    parser.add_argument("--batch-size", type=int, default=256, metavar="N", help="of each rank")
    parser.add_argument("--batches", type=int, default=4, metavar="N", help="%(default)s")
    parser.add_argument("--timeout-s", type=float, default=600.0, help="of the group")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument(
        "--require", action="store_true", help=f"exit 1 unless {REQUIRED_RATIO:g} times fewer"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    chosen = options(arguments)
    facts = machine.facts()
    rows = []
    for size in [int(text) for text in chosen.ranks.split(",")]:
        print(f"{size} ranks", file=sys.stderr, flush=True)
        rows.append(measure(size, chosen))
    outcome = {"machine": facts, "step_bytes": STEP_BYTES, "results": rows}
    show(rows, chosen)
    if chosen.json:
        chosen.json.write_text(json.dumps(outcome, indent=1) + "\n")
    met = all(row["ratio"] is None or row["ratio"] >= REQUIRED_RATIO for row in rows)
    return int(chosen.require and not met)


def measure(size: int, chosen: argparse.Namespace) -> dict[str, Any]:
    """Bytes of a global batch by locality and by how far they went, and the times of a batch."""
    groups = gear.Group.loopback(
        size, ranks_per_node=chosen.ranks_per_node, timeout_s=chosen.timeout_s
    )
    everybody = ThreadPoolExecutor(size)
    start = threading.Barrier(size)

    def on_every_rank(work: Callable[[gear.Group], Any]) -> list[Any]:
        return list(everybody.map(work, groups))

    with everybody:
        buffers = on_every_rank(filled_buffer)
        row: dict[str, Any] = {
            "ranks": size,
            "nodes": groups[0].num_nodes,
            "batch_size": chosen.batch_size,
            "batches": chosen.batches,
        }
        for locality in LOCALITIES:

            def deliver(group: gear.Group, locality: str = locality) -> dict[str, float]:
                return run_loader(buffers[group.rank], locality, chosen, start)

            stats = on_every_rank(deliver)
            row[locality] = {
                **{k: sum(one[k] for one in stats) / chosen.batches for k in KINDS},
                "seconds": max(one["seconds"] for one in stats) / chosen.batches,
                "expected_remote": expected_bytes(row, locality, groups[0].num_nodes),
                "expected_moved": expected_bytes(row, locality, size),
            }
        on_every_rank(lambda group: buffers[group.rank].close())
        on_every_rank(lambda group: group.close())
    far = ("remote",) if row["nodes"] > 1 else ("same_node", "remote")
    moved = {locality: sum(row[locality][k] for k in far) for locality in LOCALITIES}
    row["ratio"] = moved["off"] / moved["first"] if moved["first"] else None
    return row


def filled_buffer(group: gear.Group) -> gear.ReplayBuffer:
    buffer = gear.ReplayBuffer(SCHEMA, capacity=2 * EPISODES * EPISODE_STEPS, group=group)
    random = np.random.default_rng(group.rank)
    with buffer.writer() as writer:
        for _ in range(EPISODES):
            writer.extend(
                obs=random.standard_normal((EPISODE_STEPS, 17), dtype=np.float32),
                action=random.standard_normal((EPISODE_STEPS, 6), dtype=np.float32),
                reward=random.standard_normal(EPISODE_STEPS, dtype=np.float32),
            )
            writer.end_episode(terminated=True)
    return buffer


def run_loader(
    buffer: gear.ReplayBuffer, locality: str, chosen: argparse.Namespace, start: threading.Barrier
) -> dict[str, float]:
    with buffer.loader(
        batch_size=chosen.batch_size,
        sampler=gear.Uniform(),
        framework="numpy",
        prefetch=1,
        seed=7,
        locality=locality,
    ) as loader:
        start.wait(chosen.timeout_s)
        began = time.perf_counter()
        for _ in range(chosen.batches):
            batch = next(loader)
            assert len(batch.ids) == chosen.batch_size
        seconds = time.perf_counter() - began
        moved: dict[str, Any] = dict(loader.stats())
    assert moved["bytes"] == chosen.batches * chosen.batch_size * STEP_BYTES
    return {**{kind: float(moved[f"{kind}_bytes"]) for kind in KINDS}, "seconds": seconds}


def expected_bytes(row: dict[str, Any], locality: str, parts: int) -> float:
    """Bytes of a global batch that leave their part, of so many equal ones, on the average.

    Off, a draw is consumed in the part that holds it with chance 1 / parts. First, what leaves are
    the draws beyond a part's share: half the mean deviation of a binomial number, in all parts.
    """
    draws: int = row["ranks"] * row["batch_size"]
    moved = draws * (1 - 1 / parts)
    if locality == "first":
        deviation = math.sqrt(2 / math.pi * draws * (1 / parts) * (1 - 1 / parts))
        moved = parts * deviation / 2
    return moved * STEP_BYTES


def show(rows: list[dict[str, Any]], chosen: argparse.Namespace) -> None:
    head = ["ranks", "nodes", "locality", "local", "same node", "remote"]
    head += ["moved kB (expected)", "remote kB (expected)", "s a batch", "fewer"]
    table = []
    for row in rows:
        for locality in LOCALITIES:
            one = row[locality]
            shares = [one[kind] / sum(one[kind] for kind in KINDS) for kind in KINDS]
            moved = one["same_node"] + one["remote"]
            table.append(
                [
                    str(row["ranks"]),
                    str(row["nodes"]),
                    locality,
                    *(f"{share:.2%}" for share in shares),
                    f"{moved / 1e3:.1f} ({one['expected_moved'] / 1e3:.1f})",
                    f"{one['remote'] / 1e3:.1f} ({one['expected_remote'] / 1e3:.1f})",
                    f"{one['seconds']:.3f}",
                    f"{row['ratio']:.0f} times" if row["ratio"] and locality == "first" else "",
                ]
            )
    title = f"bytes of one global batch of {chosen.batch_size} items a rank, {STEP_BYTES} B each"
    report.table(title, head, table)


if __name__ == "__main__":
    sys.exit(main())
