"""What GEAR must reach, each a ratio of two things measured in one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import timing

TORCH = ("torch", "torch_1_thread")
HAND_WRITTEN = ("numpy", *TORCH)
LIMITS = ("memcpy", "copy", "copy_fsync")


@dataclass(frozen=True)
class Target:
    """gear's rate over `against`'s, at least `ratio`.

    against: contestants of which the best counts; empty: the best library.
    """

    workload: str
    ratio: float
    against: tuple[str, ...] = ()


TARGETS = [
    Target("uniform_256", 1.2, HAND_WRITTEN),
    Target("uniform_256", 3.0),
    Target("prioritised_256", 2.0),
    Target("slices_20", 2.0, TORCH),
    Target("slices_50", 2.0, TORCH),
    Target("slices_100", 2.0, TORCH),
    Target("frames_256", 0.8, ("memcpy",)),
    Target("insert_single", 1.5),
    Target("insert_256", 1.0),
    Target("save", 0.5, ("copy_fsync",)),
    Target("load", 0.5, ("copy",)),
]
MEMORY_FACTOR, MEMORY_EXTRA = 1.05, 64


def judge(results: dict[str, Any], memory: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per target: workload, against, required, measured (None: not measured), met.

    measured: median over the rounds of the ratio within a round; it decides. best: ratio of each
    side's best round, which is nearer the truth on a machine that is busy with other work.
    """
    rows = []
    for target in TARGETS:
        contestants = results.get(target.workload, {})
        rival = _best(contestants, target.against)
        measured = best = None
        if rival and "gear" in contestants:
            ours, theirs = contestants["gear"], contestants[rival]
            measured = timing.paired_ratio(ours, theirs)
            best = ours["items_per_s_best"] / theirs["items_per_s_best"]
        rows.append(
            {
                "workload": target.workload,
                "against": rival or "/".join(target.against) or "best library",
                "required": target.ratio,
                "measured": measured,
                "best": best,
                "met": None if measured is None else measured >= target.ratio,
            }
        )
    return rows + [_judge_memory(dataset, held) for dataset, held in memory.items()]


def _best(contestants: dict[str, Any], among: tuple[str, ...]) -> str | None:
    """The quickest of `among`, or of the libraries."""
    own = ("gear", *HAND_WRITTEN, *LIMITS)
    rivals = [n for n in contestants if (n in among if among else n not in own)]
    return max(rivals, key=lambda name: contestants[name]["items_per_s"], default=None)


def _judge_memory(dataset: str, held: dict[str, Any]) -> dict[str, Any]:
    """Bytes that the process grew by, over what is allowed: at most 1."""
    ours = held.get("gear")
    measured = None
    if ours:
        allowed = MEMORY_FACTOR * ours["step_bytes"] + MEMORY_EXTRA
        measured = max(ours["resident_bytes"], ours["nbytes"] or 0) / ours["steps"] / allowed
    return {
        "workload": f"memory_{dataset}",
        "against": "1.05 x step bytes + 64 B",
        "required": 1.0,
        "measured": measured,
        "best": measured,
        "met": None if measured is None else measured <= 1.0,
    }
