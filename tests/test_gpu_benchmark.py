"""The benchmark of GPUs runs from end to end without one: sizes and figures mean nothing."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.subject("benchmarks")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.slow
def test_a_rehearsal_has_every_part(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    done = run("gpu.py", "--rehearse", "--json", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    parts = {"check", "device", "pinned", "framework", "small", "turns", "weighted"}
    parts |= {"transformer"}
    assert parts | {"machine", "targets", "seconds", "failures"} == set(report)
    assert {"cpu", "cores", "date", "command", "gpu", "torch"} <= set(report["machine"])
    assert {row["met"] for row in report["targets"]} == {None}, "a rehearsal is not judged"
    assert len(report["targets"]) > 20
    shown = run("gpu_markdown.py", str(path))
    assert shown.returncode == 0, shown.stderr
    rules = [line for line in shown.stdout.splitlines() if line.startswith("| ---")]
    assert len(rules) == 6, "a rule a table"


def test_unknown_parts_are_refused() -> None:
    done = run("gpu.py", "--rehearse", "--only", "warp")
    assert done.returncode == 2
    assert "no part warp; there are limits, check" in done.stderr


@pytest.mark.slow
def test_a_rehearsal_over_ranks_has_every_part(tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    done = run("group_gpu.py", "--rehearse", "--json", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    parts = {(row["part"], row["ranks"]) for row in report["runs"]}
    assert {("scaling", 1), ("scaling", 2), ("from_peers", 2), ("overlap", 2)} <= parts
    assert all(row["remote_share"] == 1 for row in report["runs"] if row["part"] == "from_peers")
    assert {row["met"] for row in report["targets"]} == {None}, "a rehearsal is not judged"


def test_a_rehearsal_of_appends_has_every_case(tmp_path: Path) -> None:
    path = tmp_path / "appends.json"
    done = run("gpu_appends.py", "--rehearse", "--json", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    cases = {(row["tier"], row["sampler"], row["full"]) for row in report["runs"]}
    tiers = ("host", "shared", "pinned", "device")
    assert cases == set(itertools.product(tiers, ("uniform", "weighted"), (False, True)))
    assert all(row["appends"] > 0 for row in report["runs"])
    assert {row["met"] for row in report["targets"]} == {None}, "a rehearsal is not judged"


@pytest.mark.slow
def test_a_rehearsal_of_environments_has_every_case(tmp_path: Path) -> None:
    path = tmp_path / "environments.json"
    done = run("gpu_environments.py", "--rehearse", "--json", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    cases = {(row["replay"], row["updates"]) for row in report["runs"]}
    contestants = ("none", "gear", "gear, flags cpu", "gear, weighted", "ring")
    assert cases == set(itertools.product(contestants, (1, 8)))
    assert all(row["steps_per_s"] > 0 for row in report["runs"])
    assert {row["met"] for row in report["targets"]} == {None}, "a rehearsal is not judged"


def test_unknown_parts_over_ranks_are_refused() -> None:
    done = run("group_gpu.py", "--rehearse", "--only", "warp")
    assert done.returncode == 2
    assert "no part warp; there are links, scaling" in done.stderr
