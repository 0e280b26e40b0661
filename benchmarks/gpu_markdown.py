#!/usr/bin/env python3
"""The tables of docs/performance.md, from a kept result of gpu.py.

python benchmarks/gpu_markdown.py benchmarks/results/FILE.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from gpu_report import short


def _board(machine: dict[str, Any]) -> str:
    """What nvidia-smi said, "name, driver, PCIe generation, lanes, clock", with labels."""
    said = machine.get("nvidia_smi", "").split(", ")
    if len(said) != 5:
        return ""
    _, driver, generation, lanes, clock = said
    return f"driver {driver}, PCIe {generation} x{lanes}, {clock}, "


def print_tables(report: dict[str, Any]) -> None:
    """The tables of docs/performance.md."""
    machine = report["machine"]
    print(
        f"{machine['gpu']}, {machine['cores']} cores of {machine['cpu']}, "
        f"{_board(machine)}torch {machine['torch']}, {machine['date'][:10]}; "
        f"`{machine['command']}`.\n"
    )
    rows = report.get("device", []) + report.get("pinned", [])
    if rows:
        lines = []
        for row in rows:
            asked = row.get("asked", "")
            how = f"{asked}: {row['path']}" if asked == "auto" else row["path"]
            lines.append(
                [
                    row["tier"],
                    how,
                    size(row["row_bytes"]),
                    size(row["batch_bytes"]),
                    str(row["prefetch"]),
                    short(row["gb_per_s"]),
                    short(row.get("gather_gb_per_s")),
                    short(row.get("limit_gb_per_s")),
                    percent(row.get("share_of_limit")),
                    percent(row.get("gather_share_of_limit")),
                ]
            )
        heads = [
            "tier",
            "path",
            "row",
            "batch",
            "prefetch",
            "GB/s end to end",
            "GB/s of the gather",
        ]
        table([*heads, "limit, same run", "share end to end", "share of the gather"], lines)
    if report.get("framework"):
        cells = [[size(r["row_bytes"]), short(r["gb_per_s"])] for r in report["framework"]]
        table(["row", '`tensor[idx].to("cuda")`, GB/s'], cells)
    if report.get("turns"):
        keys: tuple[str, ...] = ("batch_size", "sampler", "wall_us", "host_us", "gpu_us")
        cells = [[*(short(row[key]) for key in keys)] for row in report["turns"]]
        table(["batch", "sampler", "a turn, us", "of the host, us", "of kernels, us"], cells)
    if report.get("weighted"):
        keys = ("draws_and_updates_us", "wall_us", "torch_draws_us")
        cells = [
            [f"{r['leaves']:.0e}", *(short(r[key]) for key in keys)] for r in report["weighted"]
        ]
        heads = ["leaves", "4096 draws and updates, us", "a whole step, us"]
        table([*heads, "torch: draws alone, us"], cells)
    if report.get("transformer"):
        keys = (
            "batch_size",
            "step_us",
            "step_without_loader_us",
            "wait_us_mean",
            "host_us_in_next",
        )
        cells = [
            [*(short(r[k]) for k in keys), f"{r['wait_share']:.2%}"] for r in report["transformer"]
        ]
        heads = ["batch", "step, us", "over one batch, us", "wait, us", "host in next(), us"]
        table([*heads, "waiting"], cells)
    cells = [
        [
            row["name"],
            f"{row['sign']} {row['required']}",
            short(row["measured"]),
            short(row["limit"]) if "limit" in row else "",
            {True: "yes", False: "**no**", None: "not measured"}[row["met"]],
        ]
        for row in report.get("targets", [])
    ]
    table(["target", "required", "measured", "bare kernel", "met"], cells)


def table(heads: list[str], rows: list[list[str]]) -> None:
    for cells in (heads, ["---"] * len(heads), *rows):
        print(f"| {' | '.join(cells)} |")
    print()


def percent(share: float | None) -> str:
    return f"{share:.0%}" if share else "-"


def size(count: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.0f} {name}"
    return f"{count} B"


if __name__ == "__main__":
    print_tables(json.loads(Path(sys.argv[1]).read_text()))
