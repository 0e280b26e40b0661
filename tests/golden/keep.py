"""The kept hashes of the golden cases: kept.json, a line a case.

    PYTHONPATH=tests .venv/bin/python -m golden.keep

plays all cases, here and now, writes their hashes, and prints which cases changed and in which
parts. Keep new ones only in a commit that is to change batches, and say there which and why.

What is in a hash: parts.py. What is not, as it is random or another on each machine: names and
uuids of memory, times, paths, and how many bytes a buffer takes. No case has a rate limit, which
waits, or a loader that pulls, whose draws depend on when they are made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from golden.cases import all_cases
from golden.checkpoints import all_draws, unpacked
from golden.parts import PARTS, Hashes
from golden.play import play

KEPT = Path(__file__).with_name("kept.json")


def kept_hashes() -> dict[str, Hashes]:
    """By the name of the case."""
    lines: dict[str, str] = json.loads(KEPT.read_text())
    return {name: dict(zip(PARTS, line.split(), strict=True)) for name, line in lines.items()}


def write(found: Mapping[str, Hashes]) -> None:
    """A line a case, sorted, its parts in the order of PARTS."""
    lines = {name: " ".join(found[name][part] for part in PARTS) for name in sorted(found)}
    KEPT.write_text(json.dumps(lines, indent=0) + "\n")


def differences(found: Mapping[str, Hashes], kept: Mapping[str, Hashes]) -> list[str]:
    """For each case that is not as it was kept, which parts; empty if all are."""
    said = []
    for name, hashes in found.items():
        if name not in kept:
            said.append(f"{name}: not kept")
        elif wrong := [part for part in PARTS if hashes[part] != kept[name][part]]:
            said.append(f"{name}: {', '.join(wrong)}")
    return said


def play_all() -> dict[str, Hashes]:
    found = {case.name: play(case) for case in all_cases()}
    for draw in all_draws():
        with unpacked(draw.checkpoint) as saved:
            found[draw.name] = draw.play(saved)
    return found


def main() -> None:
    before = kept_hashes() if KEPT.exists() else {}
    found = play_all()
    for line in differences(found, before):
        print(line)
    for name in sorted(before.keys() - found.keys()):
        print(f"{name}: no longer played")
    write(found)
    print(f"{len(found)} cases are kept in {KEPT.name}")


if __name__ == "__main__":
    main()
