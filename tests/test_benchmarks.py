"""The benchmark runs from end to end: tiny sizes, no peers; figures are not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

REPLAY = Path(__file__).parents[1] / "benchmarks" / "replay.py"
WORKLOADS = {
    "uniform_256": {"gear", "numpy", "torch", "torch_1_thread", "memcpy"},
    "weighted_256": {"gear", "memcpy"},
    "prioritised_256": {"gear", "memcpy"},
    "slices_20": {"gear", "numpy", "torch", "torch_1_thread", "memcpy"},
    "slices_50": {"gear", "numpy", "torch", "torch_1_thread", "memcpy"},
    "slices_100": {"gear", "numpy", "torch", "torch_1_thread", "memcpy"},
    "frames_256": {"gear", "numpy", "torch", "torch_1_thread", "memcpy"},
    "insert_single": {"gear", "numpy", "memcpy"},
    "insert_256": {"gear", "numpy", "memcpy"},
    "save": {"gear", "numpy", "copy", "copy_fsync"},
    "load": {"gear", "numpy", "copy", "copy_fsync"},
}
FIGURES = {
    "items_per_s",
    "items_per_s_best",
    "gb_per_s",
    "call_us_median",
    "call_us_p99",
    "cpu_us_per_call",
    "bytes_per_call",
    "items_per_call",
    "variant",
    "wrong",
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(REPLAY), *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("bench") / "quick.json"
    done = run("--quick", "--json", str(path))
    assert done.returncode == 0, done.stderr
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def test_report_has_every_key(report: dict[str, Any]) -> None:
    assert set(report) == {
        "machine",
        "versions",
        "workloads",
        "units",
        "results",
        "memory",
        "targets",
        "failures",
        "peers_missing",
    }
    assert {"cpu", "cores", "date", "command", "load_average_1min"} <= set(report["machine"])
    assert {"gear", "numpy", "torch", "python"} <= set(report["versions"]["gear"])
    assert not report["failures"]


def test_every_contestant_has_every_figure(report: dict[str, Any]) -> None:
    assert {name: set(found) for name, found in report["results"].items()} == WORKLOADS
    for contestants in report["results"].values():
        for figures in contestants.values():
            assert set(figures) >= FIGURES
            assert figures["items_per_s"] > 0


def test_what_is_delivered_is_what_was_stored(report: dict[str, Any]) -> None:
    for contestants in report["results"].values():
        assert not [name for name, figures in contestants.items() if figures["wrong"]]


def test_targets_are_judged(report: dict[str, Any]) -> None:
    rows = {(row["workload"], row["against"]): row for row in report["targets"]}
    assert len(rows) == len(report["targets"]) == 13
    assert rows["frames_256", "memcpy"]["measured"] > 0
    assert rows["insert_single", "best library"]["met"] is None


def test_unknown_names_are_refused() -> None:
    done = run("--quick", "--only", "uniform")
    assert done.returncode == 1
    assert "no workload uniform; there are uniform_256" in done.stderr
