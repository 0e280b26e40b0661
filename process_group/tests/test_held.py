"""A thread that holds Python's lock for long, as a call of C may, stops no operation under way."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from process_group.tests.held import CASES
from process_group.tests.launch import run_ranks

pytestmark = [
    pytest.mark.subject("process_group"),
    pytest.mark.gear_mpi,
    pytest.mark.slow,
    pytest.mark.xdist_group("process_group"),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bool]:
    """By case, whether the other rank had its results while the lock was held."""
    folder = tmp_path_factory.mktemp("held")
    ended = run_ranks(2, "held.py", environment={"FOLDER": str(folder)}, timeout_s=200)
    assert ended.returncode == 0, ended.stdout[-6000:]
    return dict(json.loads((folder / "held.json").read_text()))


@pytest.mark.parametrize("case", CASES)
def test_other_rank_has_its_results_meanwhile(told: dict[str, bool], case: str) -> None:
    assert told[case]
