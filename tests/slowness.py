"""The two tiers: a test that takes more than ten seconds of CPU time is marked `slow`, or fails."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest
import warm_python

SLOW_S = 10.0
FAILS_S = 4 * SLOW_S  # of an unmarked test: other machines are slower
SHARED_FAILS_S = 120.0  # of a fixture that several tests share, if an unmarked one asks for it

_began = pytest.StashKey[float]()
_shared = pytest.StashKey[dict[str, float]]()


def _cpu_s() -> float:
    """Of this process and of its children that have ended. A clock would count what else the
    machine does, and the host that it is a guest of."""
    spent = os.times()
    own = spent.user + spent.system + spent.children_user + spent.children_system
    return own + warm_python.spent_s


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """What tests share is not a cost of the one that asks first."""
    if fixturedef.scope == "function":
        return (yield)
    began = _cpu_s()
    try:
        return (yield)
    finally:
        request.session.stash.setdefault(_shared, {})[fixturedef.argname] = _cpu_s() - began


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    item.session.stash[_shared] = {}
    item.stash[_began] = _cpu_s()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when != "call" or not report.passed:
        return report
    shared = item.session.stash[_shared]
    own = _cpu_s() - item.stash[_began] - sum(shared.values())
    report.user_properties.append(("cpu_s", round(own, 1)))
    if item.get_closest_marker("slow") or item.get_closest_marker("gpu"):
        return report  # of a GPU: not in either tier, and its driver spins on the cores of a server
    slowest = max(shared, key=lambda name: shared[name], default="")
    if slowest and shared[slowest] > SHARED_FAILS_S:
        report.outcome = "failed"
        report.longrepr = (
            f"the fixture {slowest} took {shared[slowest]:.0f} s of CPU time, more than "
            f"{SHARED_FAILS_S:.0f}: mark the tests that use it @pytest.mark.slow"
        )
    elif own > FAILS_S:
        report.outcome = "failed"
        report.longrepr = (
            f"this took {own:.0f} s of CPU time, more than {FAILS_S:.0f}: make it faster, or "
            f"mark it @pytest.mark.slow, which is for what takes more than {SLOW_S:.0f}"
        )
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names what is nearly too slow."""
    for report in terminalreporter.getreports("passed"):
        seconds = dict(report.user_properties).get("cpu_s", 0.0)
        if seconds > SLOW_S and not {"slow", "gpu"} & set(report.keywords):
            terminalreporter.write_line(
                f"not marked slow: {seconds} s of CPU time in {report.nodeid}"
            )
