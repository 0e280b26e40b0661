#!/usr/bin/env python3
"""Measure how true `gear emu replay` is: batches of real processes beside what it says of them.

    python benchmarks/emu_replay.py --json out.json               2 and 4 processes of this machine
    python benchmarks/emu_replay.py --ranks 2 --batch 4096

The processes are ranks on a node each (GEAR_NODE), with one thread each, so that all that moves
goes by messages, of the transport that GEAR takes. First they measure what that transport takes,
call by call, which makes the curves; then they draw batches, and count what went by it. `gear emu
replay` gets the curves, and measures the rest in a process of its own, alone on the machine. With
`--device cuda` rank r keeps its rows on GPU r and the batches go there. So
ranks beyond the cores, which wait for each other's, are slower than it says. A ratio above 1: it
says more than there was.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import machine
import report

import gear
import gear.emu as emu
from gear.emu.models.curve import rising
from gear.emu.replay.measure import filled

SIZES = [1 << power for power in range(6, 23)]  # bytes of a call
CALLS, ROUNDS = 20, 7
LOCALITIES = ("first", "off")
WARM, BATCHES = 10, 200


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", default="2,4", metavar="A,B", help="%(default)s")
    parser.add_argument("--batch", type=int, default=1024, metavar="N", help="of each rank")
    parser.add_argument("--row-bytes", type=int, default=1024, metavar="N", help="%(default)s")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="%(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--curves", type=Path, help=argparse.SUPPRESS)  # of a rank: to be written
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    chosen = options(arguments)
    if chosen.curves:
        print(json.dumps(be_rank(chosen)))
        return 0
    facts, rows = machine.facts(), []
    for ranks in map(int, chosen.ranks.split(",")):
        with TemporaryDirectory(prefix="gear-emu-replay-") as folder:
            curves = Path(folder, "curves.csv")
            real = run_ranks(ranks, chosen, curves)
            for locality in LOCALITIES:
                rows.append(beside(ranks, real, said(ranks, locality, chosen, curves), locality))
    show(rows, chosen)
    if chosen.json:
        outcome = {"machine": facts, "batch": chosen.batch, "row_bytes": chosen.row_bytes}
        chosen.json.write_text(json.dumps({**outcome, "rows": rows}, indent=1) + "\n")
    return 0


def run_ranks(ranks: int, chosen: argparse.Namespace, curves: Path) -> list[dict[str, Any]]:
    """What each real rank has measured, by locality."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [f"--batch={chosen.batch}", f"--row-bytes={chosen.row_bytes}", f"--curves={curves}"]
    words.append(f"--device={chosen.device}")
    met = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    started = [
        subprocess.Popen(
            [sys.executable, __file__, *words],
            env={**environment(), **met, "RANK": str(rank), "GEAR_NODE": f"node {rank}"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    told = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit(f"a rank of {ranks} failed: see above")
    return [json.loads(one.splitlines()[-1]) for one in told]


def environment() -> dict[str, str]:
    return {**os.environ, "GEAR_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "FI_TCP_IFACE": "lo"}


def be_rank(chosen: argparse.Namespace) -> dict[str, Any]:
    """Measures the transport, and then batches by it. Collective."""
    with gear.Group.from_env(timeout_s=120) as group:
        measure_curves(group, chosen.curves)
        traffic = emu.emulate(group)
        return {
            "transport": group.transport_name,
            **{locality: batches(group, traffic, locality, chosen) for locality in LOCALITIES},
        }


def measure_curves(group: gear.Group, path: Path) -> None:
    """Rank 0 writes what calls of a transport of this group take. Collective."""
    transport, shape = group.transport(), emu.Shape(1, group.size)
    curves = {}
    for operation, prepare in {
        "all_gather": all_gather,
        "all_to_all": all_to_all,
        "send": send,
    }.items():
        points = []
        for size in SIZES:
            seconds = time_call(group, prepare(transport, size))
            points.append(emu.Point(size, seconds, basis="measured", source=transport.name))
        curves[operation, shape] = emu.Curve(rising(points))
    if group.rank == 0:
        emu.write_curves(path, curves)


def all_gather(transport: Any, size: int) -> Callable[[], object]:
    mine = bytes(size // transport.size)
    return lambda: transport.allgather(mine)


def all_to_all(transport: Any, size: int) -> Callable[[], object]:
    to = [bytes(size // transport.size)] * transport.size
    return lambda: transport.exchange(to)


def send(transport: Any, size: int) -> Callable[[], object]:
    """From the first rank to the last, and then back, which makes two calls of one."""
    last = transport.size - 1

    def one(source: int, target: int) -> None:
        to, sizes = [b""] * transport.size, [0] * transport.size
        if transport.rank == source:
            to[target] = bytes(size)
        if transport.rank == target:
            sizes[source] = size
        transport.exchange(to, sizes)

    def both() -> None:
        one(0, last)
        one(last, 0)

    return both


def time_call(group: gear.Group, call: Callable[[], object]) -> float:
    """Seconds of a call among several, the slowest rank's; the median of the rounds. Collective."""
    both = 2 if call.__name__ == "both" else 1
    found = []
    for _ in range(ROUNDS):
        group.barrier()
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        found.append((time.perf_counter() - began) / CALLS / both)
    return float(max(group.exchange(median(found))))


def batches(
    group: gear.Group, traffic: Any, locality: str, chosen: argparse.Namespace
) -> dict[str, float]:
    """The median of a batch on this rank, and what it gave others for one. Collective."""
    device = chosen.device if chosen.device == "cpu" else f"cuda:{group.rank}"
    with (
        filled(chosen.batch, chosen.row_bytes, device, group) as buffer,
        buffer.loader(
            chosen.batch,
            sampler=gear.Uniform(),
            outputs={"row": gear.Step()},
            framework="numpy" if device == "cpu" else "torch",
            device=device,
            prefetch=0,
            seed=1,
            locality=locality,
        ) as loader,
    ):
        wait = waiter(device)
        for _ in range(WARM):
            next(loader)
        group.barrier()
        before, found = given(traffic), []
        for _ in range(BATCHES):
            began = time.perf_counter()
            wait(next(loader))
            found.append(time.perf_counter() - began)
        moved = given(traffic) - before
        group.barrier()
    return {"batch_s": median(found), "bytes": moved / BATCHES}


def waiter(device: str) -> Callable[[Any], object]:
    """Returns when a batch is there."""
    if device == "cpu":
        return lambda batch: batch
    import torch

    def wait(batch: Any) -> None:
        batch["row"]  # the current stream waits for it
        torch.cuda.synchronize(device)

    return wait


def given(traffic: Any) -> int:
    return sum(one["bytes"] for one in traffic.tallies().values())


def said(ranks: int, locality: str, chosen: argparse.Namespace, curves: Path) -> dict[str, Any]:
    """The row of `gear emu replay`."""
    file = curves.with_suffix(f".{locality}.json")
    words = [f"--ranks={ranks}", "--per-node=1", f"--batch={chosen.batch}"]
    words += [f"--row-bytes={chosen.row_bytes}", f"--locality={locality}"]
    words += [f"--device={chosen.device if chosen.device == 'cpu' else 'cuda:0'}"]
    words += [f"--model={curves}", f"--json={file}"]
    program = [sys.executable, "-m", "gear.cli.app", "emu", "replay", *words]
    subprocess.run(program, cwd=curves.parent, env=environment(), check=True, stdout=sys.stderr)
    row: dict[str, Any] = json.loads(file.read_text())["rows"][0]
    return row


def beside(
    ranks: int, real: list[dict[str, Any]], row: dict[str, Any], locality: str
) -> dict[str, Any]:
    took = median(one[locality]["batch_s"] for one in real)
    moved = sum(one[locality]["bytes"] for one in real) / ranks
    return {
        "ranks": ranks,
        "transport": real[0]["transport"],
        "locality": locality,
        "real": {"batch_s": took, "bytes": moved},
        "said": row,
        "time_ratio": row["batch_s"] / took,
        "bytes_ratio": row["exchange"]["bytes"] / moved,
    }


def show(rows: list[dict[str, Any]], chosen: argparse.Namespace) -> None:
    head = ["ranks", "by", "locality", "real ms", "said ms", "draw", "gather", "exchange"]
    head += ["time", "real bytes", "said bytes", "bytes"]
    table = []
    for row in rows:
        parts = [row["said"][name]["seconds"] for name in ("draw", "gather", "exchange")]
        times = [row["real"]["batch_s"], row["said"]["batch_s"], *parts]
        table.append(
            [
                str(row["ranks"]),
                row["transport"],
                row["locality"],
                *(f"{1e3 * one:.3f}" for one in times),
                f"x {row['time_ratio']:.2f}",
                f"{row['real']['bytes']:.0f}",
                f"{row['said']['exchange']['bytes']:.0f}",
                f"x {row['bytes_ratio']:.3f}",
            ]
        )
    title = f"a batch of {chosen.batch} items of {chosen.row_bytes} bytes a rank; bytes of a rank"
    report.table(title, head, table)


if __name__ == "__main__":
    sys.exit(main())
