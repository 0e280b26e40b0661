#!/usr/bin/env python3
"""The tables of docs/performance.md over several GPUs, from a kept result of group_gpu.py.

python benchmarks/group_markdown.py benchmarks/results/FILE.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gpu_markdown
from gpu_markdown import percent, table
from gpu_report import short


def size(row: dict[str, Any]) -> str:
    """Of an item: bytes of a row, and how many steps where it is a window."""
    text = gpu_markdown.size(row["row_bytes"])
    return f"{text} x {row['steps']}" if row["steps"] > 1 else text


def print_tables(report: dict[str, Any]) -> None:
    machine = report["machine"]
    print(
        f"{machine['gpus']} GPUs, {machine['gpu']}, {machine['cores']} cores of {machine['cpu']}, "
        f"torch {machine['torch']}, {machine['date'][:10]}; `{machine['command']}`.\n"
    )

    def rows(*parts: str) -> list[dict[str, Any]]:
        return [row for row in report["runs"] if row["part"] in parts]

    if rows("from_peers"):
        heads = ["item", "GB/s of the gather", "limit, same run", "share", "GB/s end to end"]
        names = ("gather_gb_per_s", "limit_gb_per_s", "gather_share_of_limit", "gb_per_s")
        lines = []
        for row in rows("from_peers"):
            gather, limit, share, whole = (row[name] for name in names)
            lines.append([size(row), short(gather), short(limit), percent(share), short(whole)])
        table(heads, lines)
    if rows("draws"):
        alone = {
            (row["law"], row["items"], row["row_bytes"]): row
            for row in rows("draws")
            if row["ranks"] == 1
        }
        lines = []
        for row in rows("draws"):
            if row["ranks"] > 1:
                one = alone[row["law"], row["items"], row["row_bytes"]]
                times = [
                    f"{short(x['us'])} ({short(x['least_us'])}..{short(x['most_us'])})"
                    for x in (one, row)
                ]
                limit = short(1.5 * one["us"] + 15)
                lines.append(
                    [row["law"], size({**row, "steps": 1}), str(row["items"]), *times, limit]
                )
        heads = [
            "drawn",
            "item",
            "items a GPU",
            "us a batch, one GPU",
            "two",
            "1.5 times one, and 15",
        ]
        table(heads, lines)
    if rows("scaling"):
        lines = []
        for row in sorted(
            rows("scaling"),
            key=lambda r: (r["tier"], r["steps"], r["row_bytes"], r["items"], r["ranks"]),
        ):
            figures = [row["us"], row["gather_gb_per_s_all"], row["gb_per_s_all"]]
            counts = [str(row["items"]), str(row["ranks"])]
            lines.append([row["tier"], size(row), *counts, *map(short, figures)])
        heads = ["tier", "item", "items a GPU", "GPUs", "us a batch", "GB/s of all gathers"]
        table([*heads, "GB/s end to end, all GPUs"], lines)
    if rows("overlap"):
        lines = []
        for row in rows("overlap"):
            times = [short(row[name] / 1e3) for name in ("step_us", "step_with_batches_us")]
            megabytes = short(row["batch_bytes"] / 1e6)
            lines.append([str(row["ranks"]), megabytes, *times, f"{row['cost']:.1%}"])
        heads = ["GPUs", "MB a batch", "ms a step", "ms with batches", "cost, median of pairs"]
        table(heads, lines)
    if rows("messages", "messages_by_sockets"):
        lines = []
        for row in rows("messages", "messages_by_sockets"):
            sockets = " over sockets" if row["part"] == "messages_by_sockets" else ""
            megabytes = short(row["batch_bytes"] / 1e6)
            lines.append(
                [row["way"] + sockets, megabytes, short(row["us"]), short(row["gb_per_s_all"])]
            )
        table(["rows go by", "MB a batch", "us a batch", "GB/s delivered, all GPUs"], lines)


if __name__ == "__main__":
    print_tables(json.loads(Path(sys.argv[1]).read_text()))
