"""Under MPICH, beside Open MPI: every collective against gloo, and tensors of different sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from process_group.tests.launch import MPICH, run_ranks

pytestmark = [
    pytest.mark.mpich,
    pytest.mark.subject("mpich"),
    pytest.mark.slow,
    pytest.mark.xdist_group("process_group"),
]


def test_every_collective_as_on_gloo(tmp_path: Path) -> None:
    ended = run_ranks(2, "worker.py", str(tmp_path), "sizes", launcher=MPICH)
    for rank in range(2):
        file = tmp_path / f"{rank}.json"
        assert file.exists(), ended.stdout[-6000:]
        said: dict[str, str] = json.loads(file.read_text())
        assert "called all_reduce of 11 Float by SUM" in said.pop("sizes")
        assert {case: error for case, error in said.items() if error} == {}
        assert {"overlapping", "random_groups", "averages-2"} <= set(said)
