"""Every collective, dtype, reduction and way of waiting, on groups of one to four ranks, against
gloo. The ranks are started once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from process_group.tests.cases import CASES, SHARED, STAGED
from process_group.tests.launch import run_ranks

pytestmark = [
    pytest.mark.subject("process_group"),
    pytest.mark.gear_mpi,
    pytest.mark.slow,
    pytest.mark.xdist_group("process_group"),
]

SIZES = {1: [2], 2: [0, 1, 3], 3: [1, 2, 3], 4: [0, 1, 2, 3]}  # ranks of worker.GROUPS by size


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, str]]:
    """What each rank says of each case: nothing if all was right."""
    folder = tmp_path_factory.mktemp("process_group")
    ended = run_ranks(4, "worker.py", str(folder))
    assert ended.returncode == 0, ended.stdout[-6000:]
    return {rank: json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(4)}


@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize("case", list(CASES))
def test_as_gloo(said: dict[int, dict[str, str]], case: str, size: int) -> None:
    for rank in SIZES[size]:
        assert said[rank][f"{case}-{size}"] == ""


@pytest.mark.parametrize("case", [*STAGED, "overlapping"])
def test_by_way_of_other_memory(said: dict[int, dict[str, str]], case: str) -> None:
    """As tensors of a GPU go; its copies are made by a thread that is late."""
    for rank in (1, 2, 3):
        assert said[rank][f"{case}-staged"] == ""


@pytest.mark.parametrize("case", SHARED)
def test_by_memory_of_the_node(said: dict[int, dict[str, str]], case: str) -> None:
    """As GPUs of one node add up."""
    for rank in (1, 2, 3):
        assert said[rank][f"{case}-shared"] == ""


def test_groups_of_random_ranks_with_random_splits(said: dict[int, dict[str, str]]) -> None:
    for rank in range(4):
        assert said[rank]["random_groups"] == ""


def test_a_thousand_overlapping_operations(said: dict[int, dict[str, str]]) -> None:
    for rank in range(4):
        assert said[rank]["overlapping"] == ""


def test_signals_reach_the_program(said: dict[int, dict[str, str]]) -> None:
    for rank in range(4):
        assert said[rank]["signals"] == ""
