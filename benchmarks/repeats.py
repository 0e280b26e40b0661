"""Several whole runs as one result: medians with their ranges, and what is only noise."""

from __future__ import annotations

import statistics
from typing import Any

import timing

GEAR = "gear"
"""The contestant with which the others are compared: GEAR as it is without tuning."""
FEWEST = 3
"""Runs that are needed to tell a difference from noise."""

Span = dict[str, float]
"""median, min and max over the runs."""


def merge(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """{"results", "not_measured", "memory", "versions", "failures"} of all runs together, keyed as
    those of one. What one run has measured is not in `not_measured`.

    Each contestant of a workload gets

        wall_us, cpu_us          Span: of one call; the process's CPU time is of all its threads
        items_per_s, gb_per_s    Span
        p99_us                   median
        gear_ratio               Span: GEAR's items per second over this contestant's, in one run
        cpu_ratio                Span: this contestant's CPU time an item over GEAR's, in one run
        verdict                  of GEAR: "faster", "slower", "noise" where the two ranges of items
                                 per second overlap, "too few runs", or "" (for GEAR itself)

    and what stays the same in all runs. Memory is that of the run that held most.
    """
    keys = ("results", "not_measured", "memory", "versions", "failures")
    merged: dict[str, Any] = {key: {} for key in keys}
    for run in runs:
        merged["versions"].update(run["versions"])
        merged["failures"].update(run["failures"])
        for dataset, contestants in run["memory"].items():
            kept = merged["memory"].setdefault(dataset, {})
            for name, held in contestants.items():
                kept[name] = max(kept.get(name, held), held, key=lambda h: h["resident_bytes"])
    for workload in runs[0]["results"]:
        results = _merge_workload([run["results"][workload] for run in runs])
        why = {who: why for run in runs for who, why in run["not_measured"][workload].items()}
        merged["results"][workload] = results
        merged["not_measured"][workload] = {w: why[w] for w in why if w not in results}
    return merged


def span(values: list[float]) -> Span:
    """Throws StatisticsError when there are none."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def overlap(a: Span, b: Span) -> bool:
    """Whether some value lies in both ranges."""
    return a["min"] <= b["max"] and b["min"] <= a["max"]


def _merge_workload(runs: list[dict[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for run in runs for name in run)
    merged = {name: _merge_contestant([run[name] for run in runs if name in run]) for name in names}
    for name, figures in merged.items():
        both = [run for run in runs if GEAR in run and name in run]
        figures["gear_ratio"] = figures["cpu_ratio"] = figures["verdict"] = None
        if both:
            ratios = [timing.paired_ratio(run[GEAR], run[name]) for run in both]
            figures["gear_ratio"] = span(ratios)
            figures["cpu_ratio"] = span(
                [_cpu_an_item(r[name]) / _cpu_an_item(r[GEAR]) for r in both]
            )
            figures["verdict"] = "" if name == GEAR else _verdict(merged[GEAR], figures, len(both))
    return merged


def _cpu_an_item(result: dict[str, Any]) -> float:
    return float(result["cpu_us"] / result["items_per_call"])


def _merge_contestant(runs: list[dict[str, Any]]) -> dict[str, Any]:
    items, num_bytes = runs[0]["items_per_call"], runs[0]["bytes_per_call"]
    wall = [run["wall_us"] for run in runs]
    return {
        "wall_us": span(wall),
        "cpu_us": span([run["cpu_us"] for run in runs]),
        "items_per_s": span([items / us * 1e6 for us in wall]),
        "gb_per_s": span([num_bytes / us * 1e-3 for us in wall]),
        "p99_us": statistics.median(run["p99_us"] for run in runs),
        "items_per_call": items,
        "bytes_per_call": num_bytes,
        "delivered_bytes": runs[0]["delivered_bytes"],
        "calls": sum(run["calls"] for run in runs),
        "runs": len(runs),
        "variant": " or ".join(sorted({run["variant"] for run in runs})),
        "wrong": sorted({fault for run in runs for fault in run["wrong"]}),
    }


def _verdict(gear: dict[str, Any], other: dict[str, Any], runs: int) -> str:
    if runs < FEWEST:
        return "too few runs"
    if overlap(gear["items_per_s"], other["items_per_s"]):
        return "noise"
    return "faster" if other["gear_ratio"]["median"] > 1 else "slower"
