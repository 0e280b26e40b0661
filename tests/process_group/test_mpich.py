"""Under MPICH, beside Open MPI: every collective against gloo, and how ranks meet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from process_group.launch import MPICH, run_ranks

pytestmark = [pytest.mark.mpich, pytest.mark.slow, pytest.mark.xdist_group("process_group")]


def test_every_collective_as_on_gloo(tmp_path: Path) -> None:
    ended = run_ranks(2, "worker.py", str(tmp_path), launcher=MPICH)
    assert ended.returncode == 0, ended.stdout[-6000:]
    for rank in range(2):
        said: dict[str, str] = json.loads((tmp_path / f"{rank}.json").read_text())
        assert {case: error for case, error in said.items() if error} == {}
        assert {"overlapping", "random_groups", "averages-2"} <= set(said)
