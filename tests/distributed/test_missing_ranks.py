"""A rank that dies, or does not come, is named by all others within the time-out."""

from __future__ import annotations

import re
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from distributed.groups import MARKS
from distributed.launch import IMPLEMENTATIONS, Ended, launch

# Of the group. A killed rank is noticed without it: whoever waits that long is ended first.
TIMEOUT_S = {"absent": 8.0, "death": 600.0}
SIZE = 3
Case = tuple[str, str, int]  # implementation, "death" or "absent", the missing rank
# mpirun ends all ranks itself when one is killed. Rank 0 serves what others meet at.
KILLED: list[Case] = [
    ("shared_memory", "death", 1),
    ("shared_memory", "death", 0),
    ("gloo", "death", 2),
    ("gloo", "death", 0),
]
ABSENT: list[Case] = [
    ("loopback", "absent", 1),
    ("shared_memory", "absent", 2),
    ("gloo", "absent", 1),
    ("mpi", "absent", 0),
]

pytestmark = pytest.mark.slow


def parameters(cases: list[Case]) -> list[object]:
    return [
        pytest.param(case, id=f"{case[0]}-rank-{case[2]}", marks=MARKS.get(case[0], []))
        for case in cases
    ]


@pytest.fixture(scope="module")
def endings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[Case, Future[Ended]]:
    """How the groups of the chosen tests ended: two at a time, since they wait for most of it."""
    cases = {
        item.callspec.params["case"]
        for item in request.session.items
        if item.path == request.path and "case" in getattr(item, "fixturenames", ())
    }
    folder = tmp_path_factory.mktemp("missing")
    with ThreadPoolExecutor(2) as pool:
        return {case: pool.submit(play_to_the_end, case, folder) for case in sorted(cases)}


def play_to_the_end(case: Case, folder: Path) -> Ended:
    return launch(
        IMPLEMENTATIONS[case[0]],
        SIZE,
        [f"{case[1]}-{case[2]}"],
        folder / "-".join(map(str, case)),
        timeout_s=60,
        group_timeout_s=TIMEOUT_S[case[1]],
    )


@pytest.mark.parametrize("case", parameters(KILLED))
def test_a_killed_rank_is_named_by_the_others(endings, case: Case) -> None:
    ended, missing = endings[case].result(), case[2]
    assert ended.codes[missing] == -9, ended.output
    for rank in set(range(SIZE)) - {missing}:
        arrays = ended.recorded(rank, f"death-{missing}")
        check_message(str(arrays["message"]), missing)
    assert ended.left_behind == [], "names in /dev/shm outlive the ranks"


@pytest.mark.parametrize("case", parameters(ABSENT))
def test_a_rank_that_does_not_come_is_named_by_the_others(endings, case: Case) -> None:
    ended, missing = endings[case].result(), case[2]
    assert ended.recorded(missing, f"absent-{missing}")["slept"]
    for rank in set(range(SIZE)) - {missing}:
        arrays = ended.recorded(rank, f"absent-{missing}")
        check_message(str(arrays["message"]), missing)
        assert arrays["waited_s"] > TIMEOUT_S["absent"] / 2
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
    ended = launch(IMPLEMENTATIONS["loopback"], 2, ["hang"], tmp_path / "hang", timeout_s=8)
    assert ended.codes != [0]
    with pytest.raises(AssertionError, match="play_hang"):
        ended.arrays("hang")
