"""A rank that dies, or does not come, is named by all others within the time-out."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from distributed.forked import Run, plain, run
from distributed.groups import MARKS
from distributed.launch import IMPLEMENTATIONS, launch

__all__ = ["run"]  # a fixture
pytest.importorskip("torch")

SIZE = 3
LATE_S = 8.0  # time-out of a group that is to wait for a rank which draws no more

pytestmark = [pytest.mark.subject("library"), pytest.mark.slow]


# mpirun ends all ranks itself when one is killed. Rank 0 serves what others meet at.
@pytest.mark.parametrize(
    ("carried", "who"), [("shared_memory", 1), ("shared_memory", 0), ("group", 2), ("group", 0)]
)
def test_a_killed_rank_is_named_by_the_others(
    run: Run, tmp_path: Path, carried: str, who: int
) -> None:
    """Without the time-out of ten minutes."""
    results = go_missing(run, tmp_path, carried, who, HOW="dies", PATIENT_S="600")
    for result in results[:who] + results[who + 1 :]:
        check_message(result["error"], who)


@pytest.mark.parametrize(("carried", "who"), [("shared_memory", 2), ("group", 1)])
def test_a_rank_that_draws_no_more_is_named_by_the_others(
    run: Run, tmp_path: Path, carried: str, who: int
) -> None:
    results = go_missing(run, tmp_path, carried, who, HOW="lives", PATIENT_S=str(LATE_S))
    for result in results[:who] + results[who + 1 :]:
        check_message(result["error"], who)


def go_missing(run: Run, folder: Path, carried: str, who: int, **more: str) -> list[dict[str, Any]]:
    prefix = f"missing{os.getpid()}"
    places = plain(SIZE, CARRY_BY=carried, WHO=str(who), FOLDER=str(folder), **more)
    places = [{**place, "GEAR_SHM_PREFIX": prefix} for place in places]
    results = run("goes_missing", places, killed=[who] if more["HOW"] == "dies" else [])
    left = [path.name for path in Path("/dev/shm").glob(f"*{prefix}*")]
    assert left == [], "names in /dev/shm outlive the ranks"
    return results


@pytest.mark.parametrize(
    ("implementation", "missing"), [("loopback", 1), pytest.param("mpi", 0, marks=MARKS["mpi"])]
)
def test_a_rank_that_does_not_come_is_named_by_the_others(
    tmp_path: Path, implementation: str, missing: int
) -> None:
    ended = launch(
        IMPLEMENTATIONS[implementation],
        SIZE,
        [f"absent-{missing}"],
        tmp_path / "ranks",
        timeout_s=60,
        group_timeout_s=LATE_S,
    )
    assert ended.recorded(missing, f"absent-{missing}")["slept"]
    for rank in set(range(SIZE)) - {missing}:
        arrays = ended.recorded(rank, f"absent-{missing}")
        check_message(str(arrays["message"]), missing)
        assert arrays["waited_s"] > LATE_S / 2
    assert ended.left_behind == []


def check_message(message: str, missing: int) -> None:
    """One sentence; what it says is missing is that rank and no other."""
    assert "\n" not in message, message
    subject = re.match(r"\[\w+\] (.*?) (has ended|did not take part)", message)
    assert subject is not None, message
    assert re.match(rf"rank {missing}\b", subject[1]), message
    assert len(re.findall(r"\branks?\b", subject[1])) == 1, message


def test_a_launch_that_hangs_is_ended_and_shown(tmp_path: Path) -> None:
    """Of the suite itself: no test may wait for ever, or hide where the ranks stood."""
    for timeout_s in (8, 60, 240):  # a rank of a busy machine may not have begun after the first
        folder = tmp_path / str(timeout_s)
        ended = launch(IMPLEMENTATIONS["loopback"], 2, ["hang"], folder, timeout_s=timeout_s)
        assert ended.codes != [0]
        if "play_hang" in ended.output:
            break
    with pytest.raises(AssertionError, match="play_hang"):
        ended.arrays("hang")
