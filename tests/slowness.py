"""The two tiers: a test that takes more than ten seconds is marked `slow`, or fails."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

SLOW_S = 10.0
FAILS_S = 4 * SLOW_S  # of an unmarked test: other machines are slower, and share their cores
SHARED_FAILS_S = 120.0  # of a fixture that several tests share, if an unmarked one asks for it

_began = pytest.StashKey["Clock"]()
_shared = pytest.StashKey[dict[str, float]]()


class Clock:
    """What was taken of the machine since it was made: other work on it makes no test slow."""

    def __init__(self) -> None:
        self._cpu, self._calm = self._now()

    def seconds(self) -> float:
        """CPU time of this process and of its children that have ended, or time in which nothing on
        this machine waited for a core or a disk, whichever is more."""
        cpu, calm = self._now()
        return max(cpu - self._cpu, calm - self._calm)

    @staticmethod
    def _now() -> tuple[float, float]:
        spent = os.times()
        cpu = spent.user + spent.system + spent.children_user + spent.children_system
        now = time.monotonic()
        try:
            stalled = sum(_stalled_s(resource) for resource in ("cpu", "io"))
        except OSError:  # a kernel that does not tell
            stalled = now
        return cpu, now - stalled


def _stalled_s(resource: str) -> float:
    """Seconds since the start of the machine in which something waited for it."""
    some = Path("/proc/pressure", resource).read_text().splitlines()[0]
    return int(some.rpartition("total=")[2]) / 1e6


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """What tests share is not a cost of the one that asks first."""
    if fixturedef.scope == "function":
        return (yield)
    clock = Clock()
    try:
        return (yield)
    finally:
        request.session.stash.setdefault(_shared, {})[fixturedef.argname] = clock.seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    item.session.stash[_shared] = {}
    item.stash[_began] = Clock()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when != "call" or not report.passed:
        return report
    shared = item.session.stash[_shared]
    own = item.stash[_began].seconds() - sum(shared.values())
    report.user_properties.append(("machine_s", round(own, 1)))
    if item.get_closest_marker("slow") or item.get_closest_marker("gpu"):
        return report  # of a GPU: not in either tier, and its driver spins on the cores of a server
    slowest = max(shared, key=lambda name: shared[name], default="")
    if slowest and shared[slowest] > SHARED_FAILS_S:
        report.outcome = "failed"
        report.longrepr = (
            f"the fixture {slowest} took {shared[slowest]:.0f} s, more than {SHARED_FAILS_S:.0f}: "
            "mark the tests that use it @pytest.mark.slow"
        )
    elif own > FAILS_S:
        report.outcome = "failed"
        report.longrepr = (
            f"this took {own:.0f} s of this machine, more than {FAILS_S:.0f}: make it faster, or "
            f"mark it @pytest.mark.slow, which is for what takes more than {SLOW_S:.0f}"
        )
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names what is nearly too slow."""
    for report in terminalreporter.getreports("passed"):
        seconds = dict(report.user_properties).get("machine_s", 0.0)
        if seconds > SLOW_S and not {"slow", "gpu"} & set(report.keywords):
            terminalreporter.write_line(f"not marked slow: {seconds} s of {report.nodeid}")
