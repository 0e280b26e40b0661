"""From raw call times to what is reported. A round is the times of one contestant's turn."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np


def summary(
    rounds: list[list[int]], cpu_s: list[float], *, items: float, num_bytes: float
) -> dict[str, Any]:
    """rounds: nanoseconds of every call, per round; cpu_s: seconds of all the process's threads,
    per round; items and num_bytes: of one call.

    The wall time of a call is that of its round over the number of calls, so that a prefetcher's
    uneven calls add up. Both times are medians over the rounds.
    """
    wall_us = [sum(calls) / len(calls) * 1e-3 for calls in rounds]
    cpu_us = [spent / len(calls) * 1e6 for spent, calls in zip(cpu_s, rounds, strict=True)]
    every = np.concatenate([np.asarray(calls) for calls in rounds]) * 1e-3
    calls = sum(len(calls) for calls in rounds)
    return {
        "wall_us": statistics.median(wall_us),
        "cpu_us": statistics.median(cpu_us),
        "wall_us_rounds": wall_us,
        "p99_us": float(np.quantile(every, 0.99)),
        "items_per_call": items,
        "bytes_per_call": num_bytes,
        "calls": calls,
        "rounds": len(rounds),
    }


def paired_ratio(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """Our items per second over theirs: median over the rounds of the ratio within a round, so
    that what slows both cancels."""
    pairs = zip(ours["wall_us_rounds"], theirs["wall_us_rounds"], strict=True)
    scale = ours["items_per_call"] / theirs["items_per_call"]
    ratios = [float(scale * b / a) for a, b in pairs]
    return statistics.median(ratios)
