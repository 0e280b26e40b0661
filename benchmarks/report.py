"""The figures as tables: by rich where it is installed, plain columns otherwise."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

Row = list[str]


def show(report: dict[str, Any]) -> None:
    """Print every table of a report (see replay.py for its keys)."""
    for name, results in report["results"].items():
        limit = results.get("copy") or results.get("memcpy")
        head = ["", "M/s", "best", "GB/s", "% limit", "call us", "p99 us", "cpu us", "how"]
        rows = [_speed(who, result, limit) for who, result in results.items()]
        table(f"{name}: {report['units'][name]}", head, rows)
    for dataset, memory in report["memory"].items():
        head = ["", "resident B/step", "said B/step", "steps", "fill s"]
        table(f"memory: {dataset}", head, [_memory(*item) for item in memory.items()])
    head = ["", "against", "required", "measured", "best rounds", "met"]
    table("required ratios", head, [_target(row) for row in report["targets"]])
    failures = {**report["failures"], **report["peers_missing"]}
    for who, why in failures.items():
        print(f"{who}: {why}")


def _speed(who: str, result: dict[str, Any], limit: dict[str, Any] | None) -> Row:
    rate = result["gb_per_s"]
    share = 100 * rate / limit["gb_per_s"] if limit and limit["gb_per_s"] else 0
    note = "; ".join([*filter(None, [result["variant"]]), *result["wrong"]])
    return [
        who,
        f"{result['items_per_s'] * 1e-6:.3g}",
        f"{result['items_per_s_best'] * 1e-6:.3g}",
        f"{rate:.2f}",
        f"{share:.0f}",
        f"{result['call_us_median']:.1f}",
        f"{result['call_us_p99']:.1f}",
        f"{result['cpu_us_per_call']:.1f}",
        note,
    ]


def _memory(who: str, held: dict[str, Any]) -> Row:
    said = "" if held["nbytes"] is None else f"{held['nbytes'] / held['steps']:.1f}"
    resident = f"{held['resident_bytes'] / held['steps']:.1f}"
    return [who, resident, said, str(held["steps"]), f"{held['fill_s']:.1f}"]


def _target(row: dict[str, Any]) -> Row:
    measured, best = ("" if row[key] is None else f"{row[key]:.2f}" for key in ("measured", "best"))
    met = {True: "pass", False: "FAIL", None: "not measured"}[row["met"]]
    sign = "<=" if row["workload"].startswith("memory") else ">="
    return [row["workload"], row["against"], f"{sign} {row['required']:.2f}", measured, best, met]


def table(title: str, head: Row, rows: list[Row]) -> None:
    if importlib.util.find_spec("rich"):
        from rich.console import Console
        from rich.table import Table

        grid = Table(title=title, title_justify="left")
        for k, name in enumerate(head):
            grid.add_column(name, justify="left" if k in (0, len(head) - 1) else "right")
        for row in rows:
            grid.add_row(*row)
        Console(width=None if sys.stdout.isatty() else 140).print(grid)
        return
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    print(f"\n{title}")
    for row in [head, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
