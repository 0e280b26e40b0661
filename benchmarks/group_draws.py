#!/usr/bin/env python3
"""Measure what the draws of a group cost a rank and what it receives for them, by number of ranks.

    python benchmarks/group_draws.py BINARY --json out.json
    python benchmarks/group_draws.py BINARY --beside other.json --plot docs/group_draws.png

BINARY is benchmarks/group_draws.cpp, built: `cmake --build FOLDER --target gear_group_draws` in a
folder that was configured with -DGEAR_BUILD_TESTS=ON. Ranks are simulated in one process: the time
is CPU time of one rank alone, for draws and for who consumes which; bytes are what a rank receives
for them from all others, without what comes after (parcels and rows). `--beside` takes the figures
of another version, for the table and the plot.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import machine
import report

Rows = list[dict[str, Any]]
SAMPLERS = ("uniform", "weighted", "epochs", "fifo", "topk")


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("binary", type=Path, metavar="BINARY", help="gear_group_draws")
    parser.add_argument("--ranks", default="8,64,512", metavar="A,B", help="%(default)s")
    parser.add_argument("--batch-size", type=int, default=256, metavar="N", help="of each rank")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--beside", type=Path, metavar="FILE", help="figures of another version")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw both, on logarithmic axes")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    chosen = options(arguments)
    command = [str(chosen.binary), str(chosen.batch_size), *chosen.ranks.split(",")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    beside = json.loads(chosen.beside.read_text()) if chosen.beside else None
    outcome = {"machine": machine.facts(), "results": rows, "beside": beside}
    show(rows, beside["results"] if beside else [])
    if chosen.json:
        chosen.json.write_text(json.dumps(outcome, indent=1) + "\n")
    if chosen.plot:
        plot(rows, beside["results"] if beside else [], chosen)
    return 0


def show(rows: Rows, beside: Rows) -> None:
    head = ["sampler", "ranks", "draws us", "worst us", "thread us", "received bytes", "messages"]
    head += ["beside: draws us", "received bytes"] if beside else []
    table = []
    for row in rows:
        line = [
            row["sampler"],
            str(row["ranks"]),
            f"{row['cpu_us']:.1f}" if "cpu_us" in row else "",
            f"{row['worst_us']:.0f}" if "worst_us" in row else "",
            f"{row['rank_us']:.0f}",
            f"{row['received_bytes']:,.0f}",
            f"{row['messages']:.1f}",
        ]
        if beside:
            other = next((one for one in beside if same(one, row)), {})
            line.append(f"{other['cpu_us']:.1f}" if "cpu_us" in other else "")
            line.append(f"{other['received_bytes']:,.0f}" if other else "")
        table.append(line)
    report.table("a rank's draws of one batch", head, table)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return (one["sampler"], one["ranks"]) == (other["sampler"], other["ranks"])


def plot(rows: Rows, beside: Rows, chosen: argparse.Namespace) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, key in zip(panels, ("cpu_us", "received_bytes"), strict=True):
        for number, sampler in enumerate(SAMPLERS):
            for of, style, name in ((rows, "o-", sampler), (beside, "x--", f"{sampler}, before")):
                points = [
                    (row["ranks"], row[key])
                    for row in of
                    if row["sampler"] == sampler and key in row
                ]
                if points:
                    axes.plot(*zip(*points, strict=True), style, color=f"C{number}", label=name)
        axes.set(xscale="log", yscale="log", xlabel="ranks")
        axes.grid(alpha=0.3, which="both")
    panels[0].set(ylabel="CPU time of a rank, us", title="draws, and who consumes which")
    panels[1].set(ylabel="bytes that a rank receives", title="messages of the draws")
    figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.suptitle(f"one batch of {chosen.batch_size} items a rank")
    figure.savefig(chosen.plot, dpi=90)


if __name__ == "__main__":
    sys.exit(main())
