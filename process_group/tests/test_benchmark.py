"""The benchmark of gear_mpi measures all three contestants, and keeps what it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("mpi4py")

from warm_mpirun import warm_ranks

from process_group.tests.launch import REPOSITORY

pytestmark = [
    pytest.mark.subject("process_group"),
    pytest.mark.gear_mpi,
    pytest.mark.slow,
    pytest.mark.xdist_group("process_group"),
]


def test_figures_are_printed_and_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    program = str(REPOSITORY / "benchmarks" / "process_group.py")
    words = (program, "--rounds=1", "--most=4096", f"--json={kept}")
    with warm_ranks(2, tmp_path, *words) as ranks:
        said = [rank.communicate(timeout=240) for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0, 0], said
    assert "2 ranks, Open MPI" in said[0][0]
    assert said[1][0] == ""
    outcome = json.loads(kept.read_text())
    assert [row["bytes"] for row in outcome["results"]] == [4, 4096]
    for row in outcome["results"]:
        assert set(row["us"]) == {"gear_mpi", "gloo", "mpi4py"}
        assert row["rate_over"]["gloo"]["median"] > 0
    assert outcome["alone_us"]["median"] > 0
    assert outcome["nothing_us"]["median"] > 0
