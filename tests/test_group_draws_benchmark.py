"""The benchmark of a group's draws reads what its binary prints, and keeps and draws it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

GROUP_DRAWS = Path(__file__).parents[1] / "benchmarks" / "group_draws.py"
ROWS = [
    {"sampler": "uniform", "ranks": ranks, "batch_size": 4, "cpu_us": 2.5 * ranks, "rank_us": 9.0,
     "received_bytes": 24 * ranks, "messages": 2.0}
    for ranks in (2, 8)
]  # fmt: skip


def test_figures_are_kept_and_drawn_beside_others(tmp_path: Path) -> None:
    binary = tmp_path / "gear_group_draws"
    lines = "\n".join(json.dumps(row) for row in ROWS)
    binary.write_text(f"#!/bin/sh\n[ \"$*\" = '4 2 8' ] || exit 1\ncat <<'END'\n{lines}\nEND\n")
    binary.chmod(0o700)
    beside = tmp_path / "beside.json"
    other = {**ROWS[0], "cpu_us": 77.7, "received_bytes": 1234}
    beside.write_text(json.dumps({"results": [other]}))
    kept, plot = tmp_path / "kept.json", tmp_path / "plot.png"
    command = [sys.executable, str(GROUP_DRAWS), str(binary), "--batch-size", "4"]
    command += ["--ranks", "2,8", "--json", str(kept), "--beside", str(beside), "--plot", str(plot)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(kept.read_text())["results"] == ROWS
    assert "77.7" in done.stdout
    assert "1,234" in done.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")
