#!/usr/bin/env python3
"""Measure a buffer over the GPUs of a machine, and in the same run what their links give.

    python benchmarks/group_gpu.py --json out.json     1, 2, 4 ... ranks, a GPU each
    python benchmarks/group_gpu.py --only from_peers,overlap
    python benchmarks/group_gpu.py --rehearse          two ranks on the CPU: figures mean nothing

The JSON holds machine, limits, runs (a row a number of ranks and part, with what every rank
measured), targets, seconds and failures. GB/s count delivered bytes once.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import gpu
import gpu_report
import torch
from gpu_targets import Limits, share
from gpu_timing import gpu_for

HERE = Path(__file__).parent
# Of NCCL and of GEAR: machines without a faster network between them.
SOCKETS = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
# name -> what the ranks measure, the least of them, their variables, whether each is a node
PARTS: dict[str, tuple[str, int, dict[str, str], bool]] = {
    "scaling": ("scaling", 1, {}, False),
    "draws": ("draws", 1, {}, False),
    "from_peers": ("from_peers", 2, {}, False),
    "overlap": ("overlap", 1, {}, False),
    "messages": ("messages", 2, {}, True),
    "messages_by_sockets": ("messages", 2, SOCKETS, True),
}
EVERY_SIZE = {"scaling", "draws"}  # the others: with all GPUs


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--only", default="", metavar="PARTS", help=",".join(["links", *PARTS]))
    parser.add_argument("--limits", type=Path, metavar="FILE", help="limits_peer.cu, compiled")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes, without a GPU")
    chosen = parser.parse_args(arguments)
    chosen.parts = [name for name in chosen.only.split(",") if name] or ["links", *PARTS]
    unknown = set(chosen.parts) - {"links", *PARTS}
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are links, {', '.join(PARTS)}")
    return chosen


def links(binary: Path | None) -> list[dict[str, Any]]:
    """The lines of limits_peer.cu, compiled first where need be."""
    if binary is None:
        binary = HERE.parent / "build" / "gpu" / "limits_peer"
        binary.parent.mkdir(parents=True, exist_ok=True)
        command = ["nvcc", "-std=c++17", "-O3", "-arch=native", "-o", str(binary)]
        subprocess.run([*command, str(HERE / "limits_peer.cu")], check=True)
    return gpu.raw_limits(binary)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_ranks(part: str, ranks: int, rehearse: bool) -> list[Any]:
    """What every rank measured."""
    work, _, variables, apart = PARTS[part]
    asked = json.dumps({"parts": [work], "rehearse": rehearse})
    meeting = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(ranks),
    }
    started = []
    for rank in range(ranks):
        own = {"RANK": str(rank)}
        if apart:
            own |= {"GEAR_NODE": f"node-{rank}", "NCCL_HOSTID": f"node-{rank}"}
        started.append(
            subprocess.Popen(
                [sys.executable, str(HERE / "group_rank.py"), asked],
                env=os.environ | meeting | variables | own,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        said = [process.communicate(timeout=150) for process in started]
    finally:
        for process in started:
            process.kill()
    for rank, (process, (_, err)) in enumerate(zip(started, said, strict=True)):
        if process.returncode:
            raise RuntimeError(f"rank {rank} of {ranks}: {err[-3000:]}")
    prefix = "measured "
    lines = [next(x for x in out.splitlines() if x.startswith(prefix)) for out, _ in said]
    return [json.loads(line.removeprefix(prefix))[work] for line in lines]


def summary(part: str, ranks: int, found: list[Any]) -> list[dict[str, Any]]:
    """What all ranks together reach: a row for every row of rank 0."""
    if isinstance(found[0], dict):
        cost = max(one["cost"] for one in found)
        return [{"part": part, "ranks": ranks, **found[0], "cost": cost}]
    rows = []
    for number, row in enumerate(found[0]):
        each = [one[number] for one in found]
        together = {
            f"{name}_all": sum(one[name] for one in each)
            for name in ("gb_per_s", "gather_gb_per_s")
        }
        rows.append({"part": part, "ranks": ranks, **row, **together})
    return rows


def targets(report: dict[str, Any]) -> list[dict[str, Any]]:
    """As gpu_targets.targets."""
    rows: list[dict[str, Any]] = []

    def require(name: str, sign: str, required: float, measured: float | None) -> None:
        met = None
        if measured is not None and not report["machine"]["rehearsal"]:
            met = measured >= required if sign == ">=" else measured <= required
        rows.append(
            {"name": name, "sign": sign, "required": required, "measured": measured, "met": met}
        )

    alone = {
        (row["law"], row["items"], row["row_bytes"]): row["us"]
        for row in report["runs"]
        if row["part"] == "draws" and row["ranks"] == 1
    }
    for row in report["runs"]:
        if row["part"] == "draws" and row["ranks"] > 1:
            of_one = alone[row["law"], row["items"], row["row_bytes"]]
            name = f"{row['ranks']} ranks, {row['law']}, {row['items']} x {row['row_bytes']} B: us"
            require(name, "<=", 1.5 * of_one + 15, row["us"])
        if row["part"] == "scaling" and row["ranks"] == 2:
            steps = f" x {row['steps']}" if row["steps"] > 1 else ""
            name = f"2 ranks, {row['tier']}, {row['row_bytes']} B{steps} x {row['items']}"
            if row["tier"] == "device" and row["items"] > 256:
                require(f"{name}: what comes over NVLink / its bound", ">=", 0.8, row["link_share"])
            if row["tier"] == "pinned" and row["row_bytes"] == 256 and row["steps"] == 1:
                require(f"{name}: GB/s of both", ">=", 90, row["gb_per_s_all"])
        if row["part"] == "from_peers":
            steps = f" x {row['steps']}" if row["steps"] > 1 else ""
            name = f"{row['row_bytes']} B{steps} from peers' GPUs: gather kernel / bare gather"
            require(name, ">=", 0.85, row["gather_share_of_limit"])
        if row["part"] == "overlap":
            require(f"{row['ranks']} ranks: cost of batches to a step", "<=", 0.03, row["cost"])
    return rows


def show(report: dict[str, Any]) -> None:
    print(f"\nmachine: {report['machine']}")
    by_part: dict[str, list[dict[str, Any]]] = {}
    for row in report["runs"]:
        by_part.setdefault(row["part"], []).append(row)
    for part, rows in by_part.items():
        left_out = ("part", "kernels_us", "costs", "path")
        gpu_report.table(part, tuple(k for k in rows[0] if k not in left_out), rows)
        for row in rows:
            if "kernels_us" in row:
                what = " ".join(str(row.get(key, "")) for key in ("law", "items", "row_bytes"))
                print(f"  {row['ranks']} ranks, {what} B: {row['kernels_us']}")
    for name, reason in report["failures"].items():
        print(f"failed: {name}: {reason.strip().splitlines()[-1]}")
    print("targets")
    for row in report["targets"]:
        verdict = {True: "pass", False: "FAIL", None: "not measured"}[row["met"]]
        measured = gpu_report.short(row["measured"])
        print(f"  {row['name']}: {row['sign']} {row['required']}: {measured} {verdict}")


def main(arguments: list[str] | None = None) -> int:
    chosen = options(arguments)
    first = gpu_for("group_gpu", rehearse=chosen.rehearse, share=1.0)
    if first is None:
        return 2
    machine = gpu.facts(first, chosen.only)
    machine["command"] = "python benchmarks/group_gpu.py"
    machine["command"] += f" --only {chosen.only}" if chosen.only else ""
    machine["gpus"] = 2 if chosen.rehearse else torch.cuda.device_count()
    report: dict[str, Any] = {"machine": machine, "runs": [], "seconds": {}, "failures": {}}
    limits = Limits([])
    for part in chosen.parts:
        began = time.perf_counter()
        try:
            if part == "links":
                report["limits"] = [] if chosen.rehearse else links(chosen.limits)
                limits = Limits(report["limits"])
                continue
            sizes = [size for size in (1, 2, 4, 8) if size <= machine["gpus"]]
            for ranks in sizes if part in EVERY_SIZE else sizes[-1:]:
                if ranks >= PARTS[part][1]:
                    found = run_ranks(part, ranks, chosen.rehearse)
                    report["runs"] += summary(part, ranks, found)
        except Exception:  # noqa: BLE001  # the other parts are worth having
            report["failures"][part] = traceback.format_exc()
            print(f"group_gpu: {part} failed:\n{report['failures'][part]}", file=sys.stderr)
        finally:
            report["seconds"][part] = round(time.perf_counter() - began, 1)
            print(f"group_gpu: {part}: {report['seconds'][part]} s", flush=True)
            for row in report["runs"]:
                if row["part"] == "scaling":
                    batch_bytes = row["row_bytes"] * row["steps"] * row["items"]
                    limit = limits.gather("peer_gather", row["row_bytes"], batch_bytes)
                    over_links = row["gb_per_s"] * row["remote_share"]
                    row["link_share"] = over_links / limit if limit else None
                if row["part"] == "from_peers":
                    limit = limits.gather("peer_gather", row["row_bytes"], row["batch_bytes"])
                    row["limit_gb_per_s"] = limit
                    row["share_of_limit"] = share(row["gb_per_s"], limit)
                    row["gather_share_of_limit"] = share(row["gather_gb_per_s"], limit)
            report["targets"] = targets(report)
            if chosen.json:
                chosen.json.write_text(json.dumps(report, indent=1) + "\n")
    show(report)
    return 1 if report["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
