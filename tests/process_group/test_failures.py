"""Who is missing, and who does something else, is said on every rank, within the time-out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from process_group.launch import run_ranks

pytestmark = [pytest.mark.gear_mpi, pytest.mark.xdist_group("process_group")]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What each case raised, by rank. mpirun is not content: failed groups are never finalised."""
    folder = tmp_path_factory.mktemp("failing")
    ended = run_ranks(3, "failing.py", str(folder))
    files = [Path(folder, f"{rank}.json") for rank in range(3)]
    assert all(file.exists() for file in files), ended.stdout[-6000:]
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.parametrize(
    ("case", "missing", "call"),
    [
        ("absent", 1, "all_reduce (call 0 of the group)"),
        ("absent_of_small", 1, "all_reduce"),
        ("absent_of_broadcast", 0, "broadcast"),
        ("absent_of_barrier", 2, "monitored_barrier"),
        ("nobody_waits", 1, "all_reduce"),
        ("failed_before", 1, "all_reduce"),
    ],
)
def test_missing_rank_is_named(
    said: list[dict[str, str]], case: str, missing: int, call: str
) -> None:
    for rank in {0, 1, 2} - {missing}:
        assert f"rank {missing} did not come to {call}" in said[rank][case]
        assert "within 2 s" in said[rank][case]
    assert said[missing][case] == ""


def test_other_call_is_named(said: list[dict[str, str]]) -> None:
    assert any("called broadcast" in one["other_call"] for one in said)
    for one in said:
        assert "make the same calls in the same order" in one["other_call"]


@pytest.mark.parametrize("case", ["other_size", "other_compression"])
def test_other_size_is_named(said: list[dict[str, str]], case: str) -> None:
    for one in said:
        assert "give tensors of matching sizes and dtypes on all ranks" in one[case]


def test_missing_message_leaves_the_group_as_it_is(said: list[dict[str, str]]) -> None:
    words = "rank 1 has not sent rank 0 a message with tag 7 within 0.5 s"
    assert words in said[0]["no_message"]
    assert said[1]["no_message"] == said[2]["no_message"] == ""


def test_message_of_another_length(said: list[dict[str, str]]) -> None:
    assert "recv of 12 bytes with tag 0: rank 1 sent 8" in said[0]["other_length"]
