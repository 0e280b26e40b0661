"""The benchmark of locality runs from end to end, and its figures add up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LOCALITY = Path(__file__).parents[1] / "benchmarks" / "locality.py"


@pytest.mark.subject("benchmarks")
@pytest.mark.slow
def test_locality_first_moves_ten_times_fewer_bytes(tmp_path: Path) -> None:
    path = tmp_path / "locality.json"
    command = [sys.executable, str(LOCALITY), "--ranks", "1,2,6", "--ranks-per-node", "2"]
    command += ["--batches", "2", "--require", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(path.read_text())
    assert [row["ranks"] for row in outcome["results"]] == [1, 2, 6]
    assert [row["nodes"] for row in outcome["results"]] == [1, 1, 3]
    for row in outcome["results"]:
        every = row["ranks"] * row["batch_size"] * outcome["step_bytes"]
        for locality in ("first", "off"):
            bytes_of = row[locality]
            assert bytes_of["local"] + bytes_of["same_node"] + bytes_of["remote"] == every
            moved = bytes_of["same_node"] + bytes_of["remote"]
            assert abs(moved - bytes_of["expected_moved"]) <= 0.05 * every
            assert abs(bytes_of["remote"] - bytes_of["expected_remote"]) <= 0.05 * every
        assert row["first"]["remote"] * 10 <= row["off"]["remote"]
