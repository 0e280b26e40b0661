"""The benchmark of a group's small batches runs from end to end, and counts what a batch takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BATCHES = Path(__file__).parents[1] / "benchmarks" / "group_batches.py"


@pytest.mark.subject("benchmarks")
@pytest.mark.slow
def test_rounds_are_few_and_messages_sparse(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    done = subprocess.run(
        [sys.executable, str(BATCHES), "--threads", "16", "--json", str(kept)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(kept.read_text())
    for told in outcome["processes"].values():
        assert 0 < told["low"] <= told["us"] <= told["high"]
    rows = {(row["law"], row["rows"], row["locality"]): row for row in outcome["threads"]}
    assert len(rows) == 8
    for (law, _, locality), row in rows.items():
        updates = law != "uniform"
        assert row["rounds"] == 3 + updates
        passed_on = 2 * 4  # of two allgathers, log2 16 each
        if locality == "off":
            assert row["messages"] == passed_on + 15 + 15 * updates
        else:  # to few others
            assert row["messages"] <= passed_on + 2 + 15 * updates
