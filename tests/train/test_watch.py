"""What a GPU waits for in vain is ended, once, and for the right reason."""

from __future__ import annotations

import threading

import pytest

from gear.train.ranks.watch import Watch


class Work:
    """A collective whose end the test decides."""

    def __init__(self) -> None:
        self.is_done = self.is_failed = False

    def done(self) -> bool:
        return self.is_done

    def failed(self) -> bool:
        return self.is_failed


class Case:
    """A watch whose thread sleeps: the test looks in its place, at a clock of its own."""

    def __init__(self) -> None:
        self.clock_s = 100.0
        self.missing: list[int] = []
        self.aborts = 0
        self.watch = Watch(
            lambda: self.missing,
            self._abort,
            timeout_s=30,
            look_every_s=3600,
            clock=lambda: self.clock_s,
        )

    def _abort(self) -> None:
        assert self.watch.reason  # there before the GPU goes on with results of no use
        self.aborts += 1


@pytest.fixture
def case():
    made = Case()
    yield made
    made.watch.close()


def test_a_missing_rank_aborts_nothing_when_idle(case):
    case.missing = [1]
    case.watch.look()
    assert (case.watch.reason, case.aborts) == ("", 0)


def test_work_that_ends_in_time_is_not_aborted(case):
    work = Work()
    case.watch.expect(work)
    case.clock_s += 29
    case.watch.look()
    work.is_done = True
    case.clock_s += 1000
    case.missing = [1]
    case.watch.look()
    assert (case.watch.reason, case.aborts) == ("", 0)


def test_a_missing_rank_aborts_the_expected_work(case):
    case.watch.expect(Work())
    case.watch.look()
    assert case.aborts == 0
    case.missing = [1]
    case.watch.look()
    assert (case.watch.reason, case.aborts) == ("a rank has ended", 1)


def test_time_counts_from_the_last_one(case):
    case.watch.expect(Work())
    case.clock_s += 29
    case.watch.expect(Work())
    case.clock_s += 29
    case.watch.look()
    assert case.aborts == 0
    case.clock_s += 2
    case.watch.look()
    assert (case.watch.reason, case.aborts) == ("no answer within 30 s", 1)


def test_error_of_the_library_is_one_when_it_lasts(case):
    """NCCL's stream is done a moment before the one that waits for it."""
    work = Work()
    work.is_failed = True
    case.watch.expect(work)
    case.watch.look()
    assert case.aborts == 0
    case.watch.look()
    assert (case.watch.reason, case.aborts) == ("NCCL has given up an all-reduce", 1)


def test_errors_of_two_collectives_are_not_one_that_lasts(case):
    for _ in range(3):
        work = Work()
        work.is_failed = True
        case.watch.expect(work)
        case.watch.look()
    assert case.aborts == 0


def test_thread_looks_by_itself_and_ends_after_an_abort():
    aborted = threading.Event()
    watch = Watch(lambda: [2], aborted.set, timeout_s=1000, look_every_s=0.001)
    watch.expect(Work())
    assert aborted.wait(60)
    watch.close()
    assert watch.reason == "a rank has ended"
