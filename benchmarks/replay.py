#!/usr/bin/env python3
"""Measure the replay path in one run: GEAR, hand-written ways, the libraries and the limits.

    python benchmarks/replay.py --json out.json          everything; makes the peers' environments
    python benchmarks/replay.py --repeats 1 --rounds 5   a first look: one run, no ranges
    python benchmarks/replay.py --peers none             without the libraries
    python benchmarks/replay.py --only uniform_256,save --peers cpprb,tianshou
    python benchmarks/replay.py --quick                  tiny sizes, no libraries: seconds

The JSON holds machine, repeats, rounds, versions, workloads, units, results (workload -> contestant
-> figures, see repeats.py), not_offered (workload -> contestants that have no call for it),
not_measured (workload -> contestant -> why its call could not be made here), memory (dataset ->
contestant), targets, failures, peers_missing (library -> why).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import arena
import install_peers
import machine
import repeats
import report
import targets
import workloads


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--only", metavar="A,B", help="these workloads only")
    parser.add_argument("--peers", metavar="A,B", help="all (default), none, or these libraries")
    parser.add_argument("--quick", action="store_true", help="tiny sizes; peers default to none")
    parser.add_argument("--repeats", type=_count, help="whole runs, in new processes; 5")
    parser.add_argument("--rounds", type=_count, help="turns of each contestant per workload; 20")
    parser.add_argument("--require", action="store_true", help="exit 1 unless every ratio passes")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    chosen = options(arguments)
    pace = arena.QUICK if chosen.quick else arena.FULL
    given = {key: getattr(chosen, key) for key in ("repeats", "rounds") if getattr(chosen, key)}
    pace = dataclasses.replace(pace, **given)
    work = _select_workloads(chosen.only, quick=chosen.quick)
    entries = arena.own_contestants()
    missing = _add_peers(entries, chosen.peers or ("none" if chosen.quick else "all"))
    found = machine.facts()
    runs = [_run(work, entries, pace, number) for number in range(pace.repeats)]
    merged = repeats.merge(runs)
    asked = [e.name for e in entries if e.name not in {*targets.LIMITS, *merged["failures"]}]
    outcome: dict[str, Any] = {
        "machine": found,
        "repeats": pace.repeats,
        "rounds": pace.rounds,
        "workloads": [w.asdict() for w in work],
        "units": {w.name: w.unit for w in work},
        **merged,
        "not_offered": {
            name: [w for w in asked if w not in {*results, *merged["not_measured"][name]}]
            for name, results in merged["results"].items()
        },
        "targets": targets.judge(merged["results"], merged["memory"]),
        "peers_missing": missing,
    }
    report.show(outcome)
    if chosen.json:
        chosen.json.write_text(json.dumps(outcome, indent=1) + "\n")
    return int(chosen.require and not all(row["verdict"] == "pass" for row in outcome["targets"]))


def _run(
    work: list[workloads.Workload], entries: list[arena.Entry], pace: arena.Pace, number: int
) -> dict[str, Any]:
    """One whole run, as `arena.play` tells of a dataset; `number` decides the turns."""
    order = random.Random(number)
    keys = ("versions", "results", "not_measured", "failures")
    run: dict[str, Any] = {"memory": {}, **{key: {} for key in keys}}
    with tempfile.TemporaryDirectory(prefix="gear-bench-", dir=_scratch_parent()) as scratch:
        for dataset in dict.fromkeys(w.dataset for w in work):
            of_dataset = [w for w in work if w.dataset == dataset]
            _say(f"run {number + 1} of {pace.repeats}, {dataset}")
            found = arena.play(dataset, of_dataset, entries, pace, Path(scratch), _say, order)
            run["memory"][dataset] = found["memory"]
            for key in keys:
                run[key].update(found[key])
        arena.close(entries)
    return run


def _select_workloads(only: str | None, *, quick: bool) -> list[workloads.Workload]:
    every = workloads.everything(quick=quick)
    names = [w.name for w in every]
    wanted = only.split(",") if only else names
    unknown = sorted(set(wanted) - set(names))
    if unknown:
        raise SystemExit(f"--only: no workload {', '.join(unknown)}; there are {', '.join(names)}")
    return [w for w in every if w.name in wanted]


def _add_peers(entries: list[arena.Entry], wanted: str) -> dict[str, str]:
    """Append the wanted libraries; returns why one is missing, by name."""
    names = [peer.name for peer in install_peers.PEERS]
    chosen = {"all": names, "none": []}.get(wanted, wanted.split(","))
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        raise SystemExit(f"--peers: no peer {', '.join(unknown)}; there are {', '.join(names)}")
    missing = dict.fromkeys((n for n in names if n not in chosen), f"left out by --peers {wanted}")
    for peer in install_peers.PEERS:
        if peer.name in chosen:
            _say(f"peer {peer.name}: {install_peers.peers_dir() / peer.name}")
            try:
                entries.append(arena.Entry(peer.name, install_peers.command(peer)))
            except install_peers.InstallError as error:
                missing[peer.name] = str(error)
    return missing


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: at least 1")
    return number


def _scratch_parent() -> Path:
    """Checkpoints are written beside the build, on the file system that users build on."""
    folder = Path(__file__).parents[1] / "build"
    folder.mkdir(exist_ok=True)
    return folder


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
