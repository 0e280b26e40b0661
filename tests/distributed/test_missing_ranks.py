"""A rank that dies, or does not come, is named by all others within the time-out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from distributed.groups import MARKS
from distributed.launch import IMPLEMENTATIONS, Ended, launch

TIMEOUT_S = 8.0
SIZE = 3


def cases(*pairs: tuple[str, int]) -> list[object]:
    return [
        pytest.param(name, missing, id=f"{name}-{missing}", marks=MARKS.get(name, []))
        for name, missing in pairs
    ]


# mpirun ends all ranks itself when one is killed. Rank 0 serves what others meet at.
@pytest.mark.parametrize(
    ("implementation", "missing"),
    cases(("shared_memory", 1), ("shared_memory", 0), ("gloo", 2), ("gloo", 0)),
)
def test_a_killed_rank_is_named_by_the_others(
    implementation: str, missing: int, tmp_path: Path
) -> None:
    program = f"death-{missing}"
    ended = play_to_the_end(implementation, program, tmp_path)
    assert ended.codes[missing] == -9, ended.output
    for rank in set(range(SIZE)) - {missing}:
        arrays = ended.recorded(rank, program)
        check_message(str(arrays["message"]), missing)
        assert arrays["waited_s"] < TIMEOUT_S + 2
        assert arrays["closed_s"] < 2
    assert ended.left_behind == [], "names in /dev/shm outlive the ranks"


@pytest.mark.parametrize(
    ("implementation", "missing"),
    cases(("loopback", 1), ("shared_memory", 2), ("gloo", 1), ("mpi", 0)),
)
def test_a_rank_that_does_not_come_is_named_by_the_others(
    implementation: str, missing: int, tmp_path: Path
) -> None:
    program = f"absent-{missing}"
    ended = play_to_the_end(implementation, program, tmp_path)
    assert ended.recorded(missing, program)["slept"]
    for rank in set(range(SIZE)) - {missing}:
        arrays = ended.recorded(rank, program)
        check_message(str(arrays["message"]), missing)
        assert TIMEOUT_S / 2 < arrays["waited_s"] < TIMEOUT_S + 4
        assert arrays["closed_s"] < 4
    assert ended.left_behind == []


def play_to_the_end(implementation: str, program: str, folder: Path) -> Ended:
    return launch(
        IMPLEMENTATIONS[implementation],
        SIZE,
        [program],
        folder / program,
        timeout_s=60,
        group_timeout_s=TIMEOUT_S,
    )


def check_message(message: str, missing: int) -> None:
    """One sentence; what it says is missing is that rank and no other."""
    assert "\n" not in message, message
    subject = re.match(r"\[\w+\] (.*?) (has ended|did not take part)", message)
    assert subject is not None, message
    assert re.match(rf"rank {missing}\b", subject[1]), message
    assert len(re.findall(r"\branks?\b", subject[1])) == 1, message


def test_a_launch_that_hangs_is_ended_and_shown(tmp_path: Path) -> None:
    """Of the suite itself: no test may wait for ever, or hide where the ranks stood."""
    ended = launch(IMPLEMENTATIONS["loopback"], 2, ["hang"], tmp_path / "hang", timeout_s=8)
    assert ended.codes != [0]
    assert ended.took_s < 15
    with pytest.raises(AssertionError, match="play_hang"):
        ended.arrays("hang")
