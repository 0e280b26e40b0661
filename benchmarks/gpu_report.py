"""The figures of gpu.py as plain tables; the last is that of the targets."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any


def show(report: dict[str, Any]) -> None:
    print(f"\nmachine: {report['machine']}")
    for row in report.get("check", []):
        if row["area"] in ("build", "machine"):
            print(f"check: {row['name']}: {row['status']}: {row['detail']}")
    for row in report.get("limits", []):
        if row["what"] in ("device_copy", "host_to_device", "device_to_host", "launch"):
            continue
        if "gb_per_s" in row:
            keys = ("what", "order", "row_bytes", "batch_bytes", "gb_per_s", "unroll", "blocks")
            print("  ".join(f"{key}={row[key]}" for key in keys if key in row))
    rows = report.get("device", []) + report.get("pinned", [])
    if rows:
        heads = ("tier", "asked", "path", "row_bytes", "batch_bytes", "prefetch", "us", "gb_per_s")
        shares = ("limit_gb_per_s", "share_of_limit", "gather_share_of_limit")
        table("rows", (*heads, "gather_gb_per_s", *shares), rows)
        for row in rows:
            if "kernels_us" in row:
                print(f"  {row['tier']} {row['row_bytes']} B: {row['kernels_us']}")
    if report.get("framework"):
        table("by hand", ("row_bytes", "batch_bytes", "us", "gb_per_s"), report["framework"])
    for name in ("small", "turns", "weighted", "transformer"):
        found = report.get(name)
        for row in [found] if isinstance(found, dict) else found or []:
            print(f"{name}: " + ", ".join(f"{k} {short(v)}" for k, v in row.items()))
    for name, reason in report["failures"].items():
        print(f"failed: {name}: {reason.strip().splitlines()[-1]}")
    verdicts(report.get("targets", []))


def finish(report: dict[str, Any], title: str, began: float, path: Path | None) -> None:
    """Adds the seconds since `began`, shows the runs as a table, and writes all of it to `path`."""
    report["seconds"] = round(time.perf_counter() - began, 1)
    print(f"machine: {report['machine']}")
    table(title, tuple(report["runs"][0]), report["runs"])
    verdicts(report["targets"])
    if path:
        path.write_text(json.dumps(report, indent=1) + "\n")


def verdicts(targets: list[dict[str, Any]]) -> None:
    print("targets")
    for row in targets:
        verdict = {True: "pass", False: "FAIL", None: "not measured"}[row["met"]]
        print(
            f"  {row['name']}: {row['sign']} {row['required']}: {short(row['measured'])} {verdict}"
        )


def table(title: str, heads: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    cells = [[short(row.get(head, "")) for head in heads] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    print(f"\n{title}")
    for line in [heads, *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))


def short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else str(value)
