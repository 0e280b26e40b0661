"""The referee: starts the contestants of a dataset and gives each its turn, round after round."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timing
from protocol import ContestantError, Remote
from workloads import Workload

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Pace:
    """How long: whole runs, rounds per workload in each, seconds of one turn, and of warming up.

    Many short turns: what disturbs the machine meets all contestants alike. Several whole runs,
    with new processes: where memory happens to lie is not taken for speed.
    """

    repeats: int
    rounds: int
    turn_s: float
    warm_up_s: float
    quick: bool

    def calls(self, call_s: float) -> int:
        """Calls in one turn; at most 5000, at least one."""
        return max(1, min(5000, int(self.turn_s / call_s)))

    def rounds_of(self, workload: Workload) -> int:
        """A call that writes a file is a turn of many times turn_s: fewer of them."""
        return min(self.rounds, 9) if workload.to_disk else self.rounds


FULL = Pace(repeats=5, rounds=20, turn_s=0.02, warm_up_s=0.1, quick=False)
QUICK = Pace(repeats=1, rounds=2, turn_s=0.005, warm_up_s=0.005, quick=True)


@dataclass
class Entry:
    """A contestant: its command, and the process while a dataset is being played."""

    name: str
    command: list[str]
    remote: Remote | None = None


def own_contestants() -> list[Entry]:
    """GEAR, what a user would write by hand, and the limits: all under this interpreter."""

    def entry(name: str, script: str, *arguments: str) -> Entry:
        return Entry(name, [sys.executable, str(HERE / "contestants" / script), *arguments])

    return [
        entry("gear", "gear_contestant.py", "default_pages"),
        entry("gear_episode_pages", "gear_contestant.py", "episode_pages"),
        entry("numpy", "numpy_contestant.py"),
        entry("torch", "torch_contestant.py", "0"),
        entry("torch_1_thread", "torch_contestant.py", "1"),
        *(
            entry(name, "copy_contestant.py", name)
            for name in ("memcpy_1_thread", "memcpy_all_threads", "copy", "copy_fsync")
        ),
    ]


def play(
    dataset: str,
    workloads: list[Workload],
    entries: list[Entry],
    pace: Pace,
    scratch: Path,
    say: Callable[[str], None],
    order: random.Random,
) -> dict[str, Any]:
    """Run the workloads of one dataset. Returns {"versions", "memory", "results", "not_measured",
    "failures"}, each keyed by contestant, results and what was not measured by workload first.

    `order` shuffles the turns of every round, so that nobody always follows the same one, whose
    threads may work on for a while."""
    keys = ("versions", "memory", "results", "not_measured", "failures")
    found: dict[str, Any] = {key: {} for key in keys}
    try:
        for entry in entries:  # All start importing at once.
            if entry.remote is None:
                entry.remote = Remote(entry.name, entry.command, scratch)
        for entry in entries:
            hello = _ask(entry, found, "hello")
            filled = _ask(entry, found, "fill", dataset=dataset, quick=pace.quick)
            if hello and filled:
                say(f"{dataset}: {entry.name} filled in {filled['fill_s']:.1f} s")
                found["versions"][entry.name] = hello["versions"]
                found["memory"][entry.name] = filled
        for workload in workloads:
            say(f"{workload.name} ...")
            found["results"][workload.name] = _compete(workload, entries, found, pace, order)
    except BaseException:
        close(entries)
        raise
    if not pace.quick:  # Resident memory is that of one dataset only in a process of its own.
        close(entries)
    return found


def close(entries: list[Entry]) -> None:
    """End the processes of the contestants."""
    for entry in entries:
        if entry.remote is not None:
            entry.remote.close()
        entry.remote = None


def _compete(
    workload: Workload,
    entries: list[Entry],
    found: dict[str, Any],
    pace: Pace,
    order: random.Random,
) -> dict[str, Any]:
    started: dict[str, dict[str, Any]] = {}
    not_measured = found["not_measured"][workload.name] = {}
    for entry in entries:
        reply = _ask(entry, found, "start", workload=workload.asdict(), warm_up_s=pace.warm_up_s)
        if reply and "not_measured" in reply:
            not_measured[entry.name] = reply["not_measured"]
        elif reply and reply["offered"]:
            started[entry.name] = reply
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in started}
    for _ in range(pace.rounds_of(workload)):
        for entry in order.sample(entries, len(entries)):
            if entry.name in started:
                calls = pace.calls(started[entry.name]["call_s"])
                discard = 8 if workload.delivers else 0
                turn = _ask(entry, found, "round", calls=calls, discard=discard)
                turns[entry.name] += [turn] if turn else []
    results = {}
    for entry in entries:
        name = entry.name
        if len(turns.get(name, [])) == pace.rounds_of(workload):
            start = started[name]
            results[name] = timing.summary(
                [turn["ns"] for turn in turns[name]],
                [turn["cpu_s"] for turn in turns[name]],
                items=start["items"],
                num_bytes=start["bytes"],
            ) | {key: start[key] for key in ("variant", "wrong", "delivered_bytes")}
            _ask(entry, found, "stop")
    return results


def _ask(entry: Entry, found: dict[str, Any], op: str, **arguments: Any) -> dict[str, Any] | None:
    """The answer, or None once the contestant has failed; the failure is kept with its reason."""
    if entry.remote is None:
        return None
    try:
        return entry.remote.ask(op, **arguments)
    except ContestantError as error:
        found["failures"][entry.name] = str(error)
        entry.remote.close()
        entry.remote = None
        return None
