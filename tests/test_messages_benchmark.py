"""The benchmark of messages runs from end to end, and keeps what every transport took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ports import fresh_port

MESSAGES = Path(__file__).parents[1] / "benchmarks" / "messages.py"


@pytest.mark.subject("benchmarks")
@pytest.mark.slow
def test_every_transport_that_is_named_is_measured(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    command = [sys.executable, str(MESSAGES), "--transports=shared_memory,group", "--rounds=2"]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(fresh_port()), "WORLD_SIZE": "2"}
    other = subprocess.Popen(command, env={**os.environ, **meeting, "RANK": "1"})
    try:
        done = subprocess.run(
            [*command, f"--json={kept}"],
            env={**os.environ, **meeting, "RANK": "0"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert other.wait(60) == 0
    finally:
        other.kill()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 ranks on 1 node(s)")
    outcome = json.loads(kept.read_text())
    assert outcome["ranks"] == 2
    assert [row["work"] for row in outcome["works"]] == [
        "allgather 8 B",
        "allgather 4,096 B",
        "exchange 64 KiB",
        "exchange 1,024 KiB",
        "exchange 8,192 KiB",
    ]
    for row in outcome["works"]:
        assert set(row["taken"]) == {"shared_memory", "group"}
        for taken in row["taken"].values():
            wall = taken["wall_us"]
            assert 0 < wall["min"] <= wall["median"] <= wall["max"]
