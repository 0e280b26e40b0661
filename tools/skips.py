"""Prints for each report of pytest how many tests passed, and why how many others were skipped.

python tools/skips.py build/pytest.xml build/pytest-frameworks.xml

Reports are those of --junitxml. One that is not there is of tests that were not run;
pytest-NAME.xml is the report of NAME.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def count(report: Path) -> str:
    """As in: 5 passed, 3 skipped: 2 this machine has no gpu, 1 no wandb here."""
    if not report.exists():
        return "not run"
    cases = list(ElementTree.parse(report).iter("testcase"))
    said = [f"{sum(case.find('*[@message]') is None for case in cases)} passed"]
    for tag, word in (("failure", "failed"), ("error", "ended by errors")):
        if number := sum(case.find(tag) is not None for case in cases):
            said.append(f"{number} {word}")
    reasons = Counter(reason(found) for case in cases for found in case.iter("skipped"))
    why = ", ".join(f"{number} {text}" for text, number in reasons.most_common())
    said.append(f"{reasons.total()} skipped: {why}" if reasons else "none skipped")
    return ", ".join(said)


def reason(skipped: ElementTree.Element) -> str:
    message = skipped.get("message", "")
    if skipped.get("type") == "pytest.xfail":
        return f"expected to fail: {message}"
    if message == "collection skipped":  # a whole file; its text is (path, line, reason)
        return str(ast.literal_eval(skipped.text or "")[2]).removeprefix("Skipped: ")
    return message


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        name = path.stem.partition("-")[2]
        print(f"test: {name}: {count(path)}" if name else f"test: {count(path)}")
