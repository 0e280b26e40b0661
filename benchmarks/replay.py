#!/usr/bin/env python3
"""Measure the replay path in one run: GEAR, hand-written ways, the libraries and the limits.

    python benchmarks/replay.py --json out.json          everything; makes the peers' environments
    python benchmarks/replay.py --peers none             without the libraries
    python benchmarks/replay.py --only uniform_256,save --peers cpprb,tianshou
    python benchmarks/replay.py --quick                  tiny sizes, no libraries: seconds

The JSON holds machine, versions, workloads, units, results (workload -> contestant -> figures),
memory (dataset -> contestant), targets, failures, peers_missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import arena
import install_peers
import machine
import report
import targets
import workloads


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--only", metavar="A,B", help="these workloads only")
    parser.add_argument("--peers", metavar="A,B", help="all (default), none, or these libraries")
    parser.add_argument("--quick", action="store_true", help="tiny sizes; peers default to none")
    parser.add_argument("--rounds", type=int, help="turns of each contestant per workload")
    parser.add_argument("--require", action="store_true", help="exit 1 unless every ratio is met")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    chosen = options(arguments)
    pace = arena.QUICK if chosen.quick else arena.FULL
    if chosen.rounds:
        pace = arena.Pace(chosen.rounds, pace.turn_s, pace.warm_up_s, pace.quick)
    work = _select_workloads(chosen.only, quick=chosen.quick)
    entries = arena.own_contestants()
    missing = _add_peers(entries, chosen.peers or ("none" if chosen.quick else "all"))
    outcome: dict[str, Any] = {
        "machine": machine.facts(),
        "versions": {},
        "workloads": [w.asdict() for w in work],
        "units": {w.name: w.unit for w in work},
        "results": {},
        "memory": {},
        "failures": {},
        "peers_missing": missing,
    }
    with tempfile.TemporaryDirectory(prefix="gear-bench-", dir=_scratch_parent()) as scratch:
        for dataset in dict.fromkeys(w.dataset for w in work):
            of_dataset = [w for w in work if w.dataset == dataset]
            found = arena.play(dataset, of_dataset, entries, pace, Path(scratch), _say)
            outcome["memory"][dataset] = found["memory"]
            for key in ("versions", "results", "failures"):
                outcome[key].update(found[key])
        arena.close(entries)
    outcome["targets"] = targets.judge(outcome["results"], outcome["memory"])
    report.show(outcome)
    if chosen.json:
        chosen.json.write_text(json.dumps(outcome, indent=1) + "\n")
    return int(chosen.require and not all(row["met"] for row in outcome["targets"]))


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
    missing = {}
    for peer in install_peers.PEERS:
        if peer.name in chosen:
            _say(f"peer {peer.name}: {install_peers.peers_dir() / peer.name}")
            try:
                entries.append(arena.Entry(peer.name, install_peers.command(peer)))
            except install_peers.InstallError as error:
                missing[peer.name] = str(error)
    return missing


def _scratch_parent() -> Path:
    """Checkpoints are written beside the build, on the file system that users build on."""
    folder = Path(__file__).parents[1] / "build"
    folder.mkdir(exist_ok=True)
    return folder


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
