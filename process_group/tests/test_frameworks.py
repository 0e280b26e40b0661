"""DDP, FSDP2, tensor parallel, DTensor, checkpoints, compiled functional collectives, the profiler
and GEAR's own group on gear_mpi: the same losses as on gloo. The ranks are started once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from process_group.tests.launch import run_ranks

pytestmark = [
    pytest.mark.subject("process_group"),
    pytest.mark.gear_mpi,
    pytest.mark.slow,
    pytest.mark.xdist_group("process_group"),
]

CASES = [
    "data_parallel",
    "sparse_gradients",
    "names_in_logging_data",
    "compressed_data_parallel",
    "fully_sharded",
    "checkpoints",
    "tensor_parallel",
    "tensors_over_ranks",
    "functional_collectives",
    "replay_group",
    "profiled",
    "profiled_before_futures_end",
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What each rank says of each case: nothing if all was right."""
    folder = tmp_path_factory.mktemp("frameworks")
    ended = run_ranks(2, "frameworks.py", str(folder))
    assert ended.returncode == 0, ended.stdout[-6000:]
    return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("case", CASES)
def test_as_on_gloo(said: list[dict[str, str]], case: str) -> None:
    assert [one[case] for one in said] == ["", ""]


def test_every_case_is_named(said: list[dict[str, str]]) -> None:
    assert list(said[0]) == CASES
