"""From raw call times to what is reported. A round is the times of one contestant's turn."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np


def summary(
    rounds: list[list[int]], cpu_s: list[float], *, items: float, num_bytes: float
) -> dict[str, Any]:
    """rounds: nanoseconds of every call, per round; items and num_bytes: of one call.

    The rate of a round is all of its items over all of its time, so that a prefetcher's uneven
    calls add up. The reported rate is the median over the rounds; the best is the rate of the least
    disturbed round.
    """
    rates = [items * len(calls) / sum(calls) * 1e9 for calls in rounds]
    every = np.concatenate([np.asarray(calls) for calls in rounds]) * 1e-3
    calls = sum(len(calls) for calls in rounds)
    rate = statistics.median(rates)
    return {
        "items_per_s": rate,
        "items_per_s_best": max(rates),
        "items_per_s_rounds": rates,
        "gb_per_s": rate / items * num_bytes * 1e-9,
        "call_us_median": float(np.median(every)),
        "call_us_p99": float(np.quantile(every, 0.99)),
        "cpu_us_per_call": sum(cpu_s) / calls * 1e6,
        "items_per_call": items,
        "bytes_per_call": num_bytes,
        "calls": calls,
        "rounds": len(rounds),
    }


def paired_ratio(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """Median over the rounds of the ratio within a round: what slows both cancels."""
    pairs = zip(ours["items_per_s_rounds"], theirs["items_per_s_rounds"], strict=True)
    return statistics.median(a / b for a, b in pairs)
