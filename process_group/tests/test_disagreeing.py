"""Where one rank gives something else to a collective call, every rank is told both, at once: for
every operation and every argument that must be alike. The ranks are started once."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from process_group.tests.disagreeing import CASES, LIMIT, SIZE
from process_group.tests.launch import run_ranks

pytestmark = [
    pytest.mark.subject("process_group"),
    pytest.mark.gear_mpi,
    pytest.mark.slow,
    pytest.mark.xdist_group("process_group"),
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What each case raised, by rank. mpirun is not content with ranks of failed groups."""
    folder = tmp_path_factory.mktemp("disagreeing")
    ended = run_ranks(SIZE, "disagreeing.py", str(folder))
    files = [folder / f"{rank}.json" for rank in range(SIZE)]
    assert all(file.exists() for file in files), ended.stdout[-6000:]
    return [json.loads(Path(file).read_text()) for file in files]


@pytest.mark.parametrize("case", list(CASES))
def test_every_rank_is_told_what_ranks_give(said: list[dict[str, str]], case: str) -> None:
    for one in said:
        for value in CASES[case].values:
            assert re.search(re.escape(value).replace(r"\?", "."), one[case]), one[case]
        assert f"within {LIMIT.total_seconds():g} s" not in one[case]
