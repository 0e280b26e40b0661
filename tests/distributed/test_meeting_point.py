"""Who is of one run, how ranks learn that all have come, and calls that may not come back."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

import gear
from gear.distributed import calls
from gear.distributed.calls import Late, in_time, soon
from gear.distributed.channels import roster
from gear.distributed.channels.roster import lacking, said_by_all, wait_for_places
from gear.distributed.meeting import meeting_point
from gear.distributed.meeting.launch import Launch
from gear.distributed.meeting.meeting_point import decline
from gear.distributed.meeting.run_identity import RunIdentity

STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}


def identity(**environ: str) -> RunIdentity:
    return RunIdentity.here(1, 4, environ)


# ---- runs ----


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        (STEP, STEP, False),
        (STEP, STEP | {"SLURM_STEP_ID": "1"}, True),
        (STEP, STEP | {"SLURM_RESTART_COUNT": "1"}, True),
        # mpirun's ranks are in a step of Slurm on some nodes, and in none on its own.
        (STEP | {"PMIX_NAMESPACE": "p1"}, {"SLURM_JOB_ID": "7", "PMIX_NAMESPACE": "p1"}, False),
        (STEP | {"PMIX_NAMESPACE": "p1"}, STEP | {"PMIX_NAMESPACE": "p2"}, True),
        # Numbered by hand within a job: a step for each rank, or one for all.
        (STEP | {"RANK": "0"}, STEP | {"SLURM_STEP_ID": "1", "RANK": "1"}, False),
        (STEP | {"RANK": "0"}, {"SLURM_JOB_ID": "8", "RANK": "1"}, True),
        (STEP | {"GEAR_RUN_ID": "a"}, {"GEAR_RUN_ID": "a"}, False),
        ({"GEAR_RUN_ID": "a"}, {"GEAR_RUN_ID": "b"}, True),
        ({"GEAR_RUN_ID": "a"}, {}, False),  # not for certain
    ],
)
def test_runs_that_certainly_differ(
    one: dict[str, str], other: dict[str, str], differ: bool
) -> None:
    assert identity(**one).differs(identity(**other)) == differ
    assert identity(**other).differs(identity(**one)) == differ


def test_likeness_is_by_program_first_then_by_who_started_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = identity(LR="1")
    twin, other = identity(LR="1", RANK="3"), identity(LR="2")
    monkeypatch.setattr("os.getppid", lambda: 1)
    stranger = identity(LR="1")
    assert twin.likeness(server) > stranger.likeness(server) > other.likeness(server)


def test_words_of_another_version_are_refused() -> None:
    with pytest.raises(gear.InvalidArgument, match="must run the same version of GEAR"):
        RunIdentity.from_text(b'{"run": "", "colour": 3}')


# ---- all have come ----


class Store:
    """That counts its questions, and the keys that are asked for."""

    def __init__(self, here: Iterable[int] = ()) -> None:
        self.kept: dict[str, Any] = {f"rank {rank}": b"{}" for rank in here}
        self.kept["came"] = len(self.kept)
        self.lock = threading.Lock()
        self.asked: Counter[str] = Counter()

    def check(self, keys: Sequence[str]) -> bool:
        with self.lock:
            self.asked["check"] += 1
            return all(key in self.kept for key in keys)

    def add(self, key: str, more: int) -> int:
        with self.lock:
            self.kept[key] += more
            return int(self.kept[key])

    def set(self, key: str, value: Any) -> None:
        self.kept[key] = value

    def get(self, key: str) -> Any:
        return self.kept[key]

    def multi_get(self, keys: Sequence[str]) -> list[Any]:
        self.asked["keys"] += len(keys)
        return [self.kept[key] for key in keys]


def test_the_last_to_come_collects_what_all_say() -> None:
    """No rank asks for each of the others, so that all of them cost the store their number."""
    size, store = 200, Store()
    absent: dict[int, list[int]] = {}

    def come(rank: int) -> None:
        store.set(f"rank {rank}", json.dumps({"rank": rank}).encode())
        absent[rank] = wait_for_places(store, size, time.monotonic() + 60)

    threads = [threading.Thread(target=come, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert absent == {rank: [] for rank in range(size)}
    assert said_by_all(store) == [{"rank": rank} for rank in range(size)]
    assert store.asked["keys"] == size


def test_who_has_not_come_is_named() -> None:
    store = Store(range(6))
    del store.kept["rank 2"]
    assert wait_for_places(store, 8, time.monotonic() + 0.3) == [2, 6, 7]
    assert store.asked["keys"] == 0


def test_few_questions_find_the_few_that_have_not() -> None:
    store = Store(set(range(4096)) - {17, 300, 4095})
    assert lacking(store, [f"rank {rank}" for rank in range(4096)]) == [17, 300, 4095]
    assert store.asked["check"] < 80


def test_a_last_rank_that_ends_before_it_collects_is_not_waited_for() -> None:
    """It was counted: another rank that looks who is there says what all have said."""
    store = Store(range(8))
    store.kept["came"] = 8
    assert wait_for_places(store, 8, time.monotonic() + 60) == []
    assert said_by_all(store) == [{}] * 8


def test_ranks_ask_less_often_the_more_they_are() -> None:
    assert roster.pause_of(8) == roster.POLL_S
    for size in (512, 4096):
        assert size * roster.QUESTIONS / roster.pause_of(size) <= roster.MOST_QUESTIONS


@pytest.mark.parametrize("size", [4, 4096])
def test_who_serves_the_store_and_does_not_come_stays_for_a_look_of_each(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    there = Store(range(1, size))
    monkeypatch.setattr(meeting_point, "launch_store", lambda *_: there)
    monkeypatch.setattr(meeting_point, "own_store", lambda *_: there)
    monkeypatch.setattr(meeting_point, "tell_failed", lambda *_: None)
    monkeypatch.setattr("time.sleep", slept.append)
    decline(Launch("environment", 0, size, "store", "localhost", 1), "[train] no")
    assert sum(slept) >= max(roster.pause_of(size), 0.5)


# ---- calls that may not come back ----


def test_a_call_in_time() -> None:
    deadline = time.monotonic() + 60
    assert in_time(deadline, lambda: 3, "") == 3
    with pytest.raises(ZeroDivisionError):
        in_time(deadline, lambda: 1 // 0, "")


def test_a_call_that_does_not_come_back() -> None:
    stuck = threading.Event()
    with pytest.raises(Late, match="why"):
        in_time(time.monotonic() + 0.05, stuck.wait, "why")
    assert in_time(time.monotonic() + 60, lambda: "another thread", "") == "another thread"
    stuck.set()


def test_a_wait_ends_when_a_look_at_others_says_so() -> None:
    stuck = threading.Event()

    def look() -> None:
        raise gear.TransportError("[transport] gone")

    with pytest.raises(gear.TransportError, match="gone"):
        in_time(time.monotonic() + 60, stuck.wait, "", look)
    stuck.set()


def test_there_is_a_thread_for_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 starts none while it ends."""
    soon(lambda: "met")

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    while not calls._idle:
        time.sleep(0.001)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert soon(lambda: "said") == "said"
