"""Nothing that a program does in pure Python ends in a signal, or never."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from contract import misuse

import gear

pytestmark = pytest.mark.subject("library")

LIMIT_S = 200
BY_NIGHT = [pytest.mark.slow, pytest.mark.nightly]
SLOW = {("forked-child", "Group")}
CASES = [pytest.param(*case, marks=BY_NIGHT if case in SLOW else []) for case in misuse.cases()]


@pytest.mark.timeout(LIMIT_S + 40)
@pytest.mark.parametrize(("scenario", "name"), CASES)
def test_misuse_ends_in_a_result_or_an_exception(scenario: str, name: str) -> None:
    program = Path(misuse.__file__)
    done = subprocess.run(
        [sys.executable, program, scenario, name],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=program.parent,
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}{done.stderr}"
    assert re.fullmatch(r"\d+ raised, \d+ returned\n", done.stdout), done.stdout


def test_every_class_is_misused() -> None:
    """A class that is added is a value, an error, or has an entry in FACTORIES."""
    classes = {name for name in gear.__all__ if inspect.isclass(getattr(gear, name))}
    errors = {name for name in classes if issubclass(getattr(gear, name), Exception)}
    assert classes - errors - misuse.VALUES <= set(misuse.FACTORIES)
