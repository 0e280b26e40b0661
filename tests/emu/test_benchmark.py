"""The benchmarks of holds and of replay run from end to end; figures are not judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from docs.documents import ROOT


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.usefixtures("library")
def test_it_measures_holds_calls_and_steps(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = ["--rounds=1", "--steps=4", f"--json={tmp_path / 'holds.json'}"]
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "emu_holds.py", *words],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "holds.json").read_text())
    assert set(found["late_us"]) == {"link_200_us", "link_2_ms", "link_20_ms"}
    assert all(one["held: median"]["median"] > 0 for one in found["late_us"].values())
    assert {"gear_emu", "fake", "over fake"} == set(found["call_us"])
    jobs = {"4 real", "2 real, 2 emulated", "1 real, 3 emulated"}
    assert jobs <= set(found["step_ms"])
    assert all(found["step_ms"][job]["median"] > 70 for job in jobs)  # 50 slept, 20 held
    assert "a hold ends late by" in done.stdout


@pytest.mark.slow
@pytest.mark.nightly
def test_it_sets_replay_beside_processes(tmp_path: Path) -> None:
    words = ["--ranks=2", "--batch=64", "--row-bytes=64", f"--json={tmp_path / 'replay.json'}"]
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "emu_replay.py", *words],
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "replay.json").read_text())["rows"]
    assert [(row["ranks"], row["locality"]) for row in rows] == [(2, "first"), (2, "off")]
    assert all(row["time_ratio"] > 0 for row in rows)
    assert all(0.5 < row["bytes_ratio"] < 2 for row in rows)
