"""Who is of one run, how ranks learn that all have come, and calls that may not come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

import gear
from gear.distributed import calls
from gear.distributed.calls import Late, in_time, soon
from gear.distributed.channels.roster import wait_for_places
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
    """Of ranks that come one by one, one with each look."""

    def __init__(self, size: int) -> None:
        self.here = 0
        self.size = size
        self.asked = 0

    def check(self, keys: Sequence[str]) -> bool:
        self.asked += 1
        if keys == ["failed"]:
            self.here += self.size // 4
            return False
        return all(int(key.split()[1]) < self.here for key in keys)


def test_ranks_ask_for_all_others_at_once() -> None:
    store = Store(1000)
    assert wait_for_places(store, 1000, time.monotonic() + 60) == []
    assert store.asked < 20


def test_who_has_not_come_is_named() -> None:
    store = Store(8)
    store.size = 0
    store.here = 6
    assert wait_for_places(store, 8, time.monotonic() + 0.3) == [6, 7]


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
