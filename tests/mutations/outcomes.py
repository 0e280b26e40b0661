"""What became of tests, read from what pytest and doctest leave."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml
from collections.abc import Iterable
from enum import Enum


class Outcome(Enum):
    """Of a test, or of all parameters of one. Only FAILED says that it has found something."""

    PASSED = "passes"
    FAILED = "fails"
    BROKEN = "does not get as far as the test itself"  # not collected, or a fixture has failed
    SKIPPED = "is skipped"
    NOT_RUN = "is not run"


def of_pytest(report: str, nodes: Iterable[str]) -> dict[str, Outcome]:
    """Of these node ids, by a report in the format of JUnit (``--junitxml``)."""
    cases = list(xml.fromstring(report).iter("testcase"))
    return {node: _of_node(node, cases) for node in nodes}


def _of_node(node: str, cases: list[xml.Element]) -> Outcome:
    file, *classes, test = node.split("::")
    owner = ".".join([file.removesuffix(".py").replace("/", "."), *classes])
    whole = "[" not in test
    own = [
        case
        for case in cases
        if case.get("classname") == owner
        and test == (case.get("name", "").partition("[")[0] if whole else case.get("name"))
    ]
    kinds = [{part.tag for part in case} & {"failure", "error", "skipped"} for case in own]
    if any("failure" in kind for kind in kinds):
        return Outcome.FAILED
    if any("error" in kind for kind in kinds):
        return Outcome.BROKEN
    if any(not kind for kind in kinds):
        return Outcome.PASSED
    return Outcome.SKIPPED if kinds else Outcome.NOT_RUN


def of_doctest(output: str, code: int | None) -> Outcome:
    """Of one case, run by itself; code: that of the process, None where it did not end."""
    if code is None or code < 0:
        return Outcome.FAILED
    found = re.search(r"test cases:\s*(\d+) \|\s*(\d+) passed \|\s*(\d+) failed", output)
    if found is None:
        return Outcome.BROKEN
    cases, _, failed = map(int, found.groups())
    if cases == 0:
        return Outcome.NOT_RUN
    return Outcome.FAILED if failed or code else Outcome.PASSED
