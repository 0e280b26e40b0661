"""The figures as tables: by rich where it is installed, plain columns otherwise."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from targets import LIMITS

Row = list[str]


LEGEND = """
Times are of one call, in us: the median of {repeats} runs, and the lowest and the highest of them.
wall: what the caller waits. cpu: what all threads of the process spend. cores: cpu / wall.
gear is: GEAR with its default pages beside the contestant of that row, items per second in the
same run; noise where the ranges of the two overlap. %: bytes per second, of the quickest copy.
"""


def show(report: dict[str, Any]) -> None:
    """Print every table of a report (see replay.py for its keys)."""
    print(LEGEND.format(repeats=report["repeats"]))
    for name, results in report["results"].items():
        limits = [held["gb_per_s"]["median"] for who, held in results.items() if who in LIMITS]
        head = ["", "wall us", "cpu us", "cores", "p99 us", "GB/s", "%", "gear is", "how"]
        rows = [_speed(who, held, max(limits, default=0.0)) for who, held in results.items()]
        table(f"{name}: {report['units'][name]}", head, rows)
        if report["not_offered"].get(name):
            print(f"not offered by {', '.join(report['not_offered'][name])}")
        for who, why in report["not_measured"].get(name, {}).items():
            print(f"{who} was not measured: {why}")
    for dataset, memory in report["memory"].items():
        head = ["", "resident B/step", "said B/step", "steps", "fill s"]
        table(f"memory: {dataset}", head, [_memory(*item) for item in memory.items()])
    head = ["", "of", "against", "required", "measured", "verdict"]
    table("required ratios", head, [_target(row) for row in report["targets"]])
    for who, why in report["failures"].items():
        print(f"{who} failed: {why}")
    for who, why in report["peers_missing"].items():
        print(f"{who} is missing: {why}")


def ranged(figures: dict[str, float] | None) -> str:
    """A Span in three digits: 32.6 (31.9..34.1)."""
    if figures is None:
        return ""
    median, low, high = (_short(figures[key]) for key in ("median", "min", "max"))
    return median if low == high else f"{median} ({low}..{high})"


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def compared(result: dict[str, Any]) -> str:
    """GEAR beside this contestant in words: 1.85 (1.7..1.9) x as fast; noise."""
    if result["verdict"] in ("faster", "slower"):
        return f"{ranged(result['gear_ratio'])} x as fast"
    if result["verdict"] == "too few runs":
        return f"{ranged(result['gear_ratio'])} x? too few runs"
    return result["verdict"] or ""


def _speed(who: str, result: dict[str, Any], limit: float) -> Row:
    wall, cpu, rate = result["wall_us"], result["cpu_us"], result["gb_per_s"]["median"]
    note = "; ".join([*filter(None, [result["variant"]]), *result["wrong"]])
    return [
        who,
        ranged(wall),
        ranged(cpu),
        f"{cpu['median'] / wall['median']:.2f}",
        _short(result["p99_us"]),
        f"{rate:.2f}",
        f"{100 * rate / limit:.0f}" if limit else "",
        compared(result),
        note,
    ]


def _memory(who: str, held: dict[str, Any]) -> Row:
    said = "" if held["nbytes"] is None else f"{held['nbytes'] / held['steps']:.1f}"
    resident = f"{held['resident_bytes'] / held['steps']:.1f}"
    return [who, resident, said, str(held["steps"]), f"{held['fill_s']:.1f}"]


def _target(row: dict[str, Any]) -> Row:
    sign = "<=" if row["workload"].startswith("memory") else ">="
    measured = ranged(row["measured"])
    shown = row["verdict"].upper() if row["verdict"] == "fail" else row["verdict"]
    return [
        row["workload"],
        row["of"],
        row["against"],
        f"{sign} {row['required']:.2f}",
        measured,
        shown,
    ]


def table(title: str, head: Row, rows: list[Row]) -> None:
    if importlib.util.find_spec("rich"):
        from rich.console import Console
        from rich.table import Table

        grid = Table(title=title, title_justify="left")
        for k, name in enumerate(head):
            grid.add_column(name, justify="left" if k in (0, len(head) - 1) else "right")
        for row in rows:
            grid.add_row(*row)
        Console(width=None if sys.stdout.isatty() else 160).print(grid)
        return
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    print(f"\n{title}")
    for row in [head, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
