"""What GEAR must reach, each a ratio of two things measured in one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from repeats import GEAR, Span

TORCH = ("torch", "torch_1_thread")
HAND_WRITTEN = ("numpy", *TORCH)
MEMCPY = ("memcpy_1_thread", "memcpy_all_threads")
LIMITS = (*MEMCPY, "copy", "copy_fsync")
OWN = (GEAR, "gear_episode_pages", *HAND_WRITTEN, *LIMITS)


@dataclass(frozen=True)
class Target:
    """gear's rate over `against`'s, at least `ratio`.

    against: contestants of which the best counts; empty: the best library.
    of: what is compared, of repeats.merge; "cpu_ratio": the CPU time of `against` over gear's.
    """

    workload: str
    ratio: float
    against: tuple[str, ...] = ()
    of: str = "gear_ratio"


TARGETS = [
    Target("uniform_256", 1.5, HAND_WRITTEN),
    Target("uniform_256", 1.25, ("numpy",), "cpu_ratio"),
    Target("uniform_256", 3.0),
    Target("prioritised_256", 4.0),
    Target("slices_20", 3.0, TORCH),
    Target("slices_50", 3.0, TORCH),
    Target("slices_100", 3.0, TORCH),
    Target("frames_256", 0.8, MEMCPY),
    Target("frames_256", 1.0, ("torch",)),
    Target("insert_single", 1.5),
    Target("vector_step_16", 1.0),
    Target("vector_step_256", 1.0),
    Target("extend_256", 1.0),
    Target("save", 0.5, ("copy_fsync",)),
    Target("load", 0.5, ("copy",)),
]
MEMORY_FACTOR, MEMORY_EXTRA = 1.05, 64


def judge(results: dict[str, Any], memory: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per target: workload, of, against, required, measured (Span, or None), verdict.

    results and memory: of repeats.merge. verdict: "pass" or "fail" where all runs say so, "noise"
    where some say the one and some the other, "not measured". GEAR is measured with its default
    pages.
    """
    rows = []
    for target in TARGETS:
        contestants = results.get(target.workload, {})
        rival = _best(contestants, target.against)
        measured = contestants[rival][target.of] if rival else None
        rows.append(
            {
                "workload": target.workload,
                "of": "CPU time" if target.of == "cpu_ratio" else "wall time",
                "against": rival or "/".join(target.against) or "best library",
                "required": target.ratio,
                "measured": measured,
                "verdict": verdict(measured, target.ratio),
            }
        )
    return rows + [_judge_memory(dataset, held) for dataset, held in memory.items()]


def verdict(measured: Span | None, required: float) -> str:
    """Of a ratio that must be at least `required`."""
    if measured is None:
        return "not measured"
    if measured["min"] >= required:
        return "pass"
    return "fail" if measured["max"] < required else "noise"


def _best(contestants: dict[str, Any], among: tuple[str, ...]) -> str | None:
    """The quickest of `among`, or of the libraries."""
    rivals = [n for n in contestants if (n in among if among else n not in OWN)]
    return max(rivals, key=lambda name: contestants[name]["items_per_s"]["median"], default=None)


def _judge_memory(dataset: str, held: dict[str, Any]) -> dict[str, Any]:
    """Bytes that the process grew by, over what is allowed: at most 1."""
    ours, measured = held.get(GEAR), None
    if ours:
        allowed = MEMORY_FACTOR * ours["step_bytes"] + MEMORY_EXTRA
        share = max(ours["resident_bytes"], ours["nbytes"] or 0) / ours["steps"] / allowed
        measured = {"median": share, "min": share, "max": share}
    return {
        "workload": f"memory_{dataset}",
        "of": "resident bytes",
        "against": "1.05 x step bytes + 64 B",
        "required": 1.0,
        "measured": measured,
        "verdict": "not measured" if not measured else "pass" if share <= 1.0 else "fail",
    }
