"""What ranks do together to meet and to make a group ends in time, and by Ctrl-C; and a process in
which it did not end well does not wait for the others at its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from process_group.tests.launch import OUTLIVES, run_ranks

pytestmark = [
    pytest.mark.subject("process_group"),
    pytest.mark.gear_mpi,
    pytest.mark.slow,
    pytest.mark.xdist_group("process_group"),
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What each case raised, by rank."""
    folder = tmp_path_factory.mktemp("late")
    environment = {"FOLDER": str(folder)}
    ended = run_ranks(2, "late.py", environment=environment, shell=OUTLIVES, timeout_s=120)
    files = [folder / f"{rank}.json" for rank in range(2)]
    assert all(file.exists() for file in files), ended.stdout[-6000:]
    codes = [(folder / f"ended-{rank}").read_text().strip() for rank in range(2)]
    assert codes == ["0", "0"], ended.stdout[-6000:]
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.parametrize("case", ["environment", "group"])
def test_a_late_rank_0_is_waited_for_no_longer_than_asked(
    said: list[dict[str, str]], case: str
) -> None:
    words = (
        "TransportError: [mpi] what rank 0 tells all 2 ranks has not come to rank 1 within 0.5 s"
    )
    assert said[1][case].startswith(words)


@pytest.mark.parametrize("case", ["environment", "group", "backend", "operation"])
def test_ctrl_c_ends_a_wait_for_the_others(said: list[dict[str, str]], case: str) -> None:
    assert said[1][f"interrupted {case}"].startswith("KeyboardInterrupt")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("local rank", "not all 2 ranks that MPI has started asked for their local rank within"),
        ("backend", "not all 2 ranks of the group came to make it within 0.5 s"),
        ("memory", "not all ranks of a group agreed on the memory of their node within 0.5 s"),
    ],
)
def test_other_waits_for_ranks_end_in_time(
    said: list[dict[str, str]], case: str, words: str
) -> None:
    assert said[1][case].startswith(f"TransportError: [mpi] {words}")


def test_a_group_whose_memory_was_not_agreed_on_is_of_no_use(said: list[dict[str, str]]) -> None:
    assert "did not agree on the memory of their node: make another" in said[1]["after memory"]


def test_what_was_given_up_is_taken_up_when_the_others_come(said: list[dict[str, str]]) -> None:
    assert [one["variables"] for one in said] == ["0 0", "1 1"]


def test_a_failure_of_rank_0_is_told_to_the_others(said: list[dict[str, str]]) -> None:
    assert said[0]["no store"].startswith('RuntimeError: no "port"')
    words = '[mpi] rank 0 failed in init_process_group with RuntimeError: no "port" is free: look'
    assert said[1]["no store"].startswith(f"TransportError: {words}")


def test_another_call_of_rank_0_is_named(said: list[dict[str, str]]) -> None:
    assert said[0]["other call"] == "None"
    words = "[mpi] rank 0 is in set_environment while this rank is in init_process_group"
    assert said[1]["other call"].startswith(f"TransportError: {words}")


@pytest.mark.mpi
@pytest.mark.parametrize("first", ["transport", "group"])
def test_a_process_with_both_users_of_mpi_waits_for_no_hanging_rank(
    first: str, tmp_path: Path
) -> None:
    environment = {"FOLDER": str(tmp_path)}
    ended = run_ranks(
        2, "both_users.py", first, environment=environment, shell=OUTLIVES, timeout_s=120
    )
    assert "passed" in ended.stdout, ended.stdout[-6000:]
    assert (tmp_path / "ended-0").read_text().strip() == "3", ended.stdout[-6000:]
