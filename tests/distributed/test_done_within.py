"""How often a wait asks whether something is done: the later, the longer it has lasted."""

from __future__ import annotations

import pytest

from gear.distributed.timeout import SLICE_S, done_within


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        monkeypatch.setattr("gear.distributed.timeout.time", self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_the_longer_a_wait_is_the_later_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    assert not done_within(SLICE_S, lambda: False)
    assert SLICE_S < clock.now < SLICE_S * 1.2
    assert clock.slept == sorted(clock.slept)
    assert clock.slept[0] == 20e-6
    assert len(clock.slept) < 100  # and not five thousand


def test_what_is_done_at_once_is_not_slept_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    assert done_within(SLICE_S, lambda: True)
    answers = iter([False, False, True])
    assert done_within(SLICE_S, lambda: next(answers))
    assert clock.slept == [20e-6, 20e-6]
