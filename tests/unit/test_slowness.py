"""An unmarked test that takes much CPU time fails; one that waits does not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parents[1]

TESTS = """
import subprocess, sys, time
import pytest

WORKS = "import time; begin = time.process_time()\\nwhile time.process_time() < begin + 0.4: pass"

@pytest.fixture(scope="module")
def shared():
    exec(WORKS)

def test_of_a_shared_fixture(shared):
    pass

def test_works():
    exec(WORKS)

def test_has_others_work():
    subprocess.run([sys.executable, "-c", WORKS], check=True)

def test_waits():
    time.sleep(0.5)

@pytest.mark.slow
def test_says_so():
    exec(WORKS)

@pytest.mark.gpu
def test_of_a_gpu():
    exec(WORKS)
"""


def outcomes(folder: Path, **limits: float) -> dict[str, str]:
    """By test, with other limits."""
    markers = "    slow: takes long\n    gpu: wants one\n"
    (folder / "pytest.ini").write_text(f"[pytest]\nmarkers =\n{markers}")
    (folder / "test_it.py").write_text(TESTS)
    shutil.copy(SUITE.parent / "conftest.py", folder)
    for name in ("kept_runs.py", "slowness.py", "warm_python.py"):
        shutil.copy(SUITE / name, folder)
    with (folder / "slowness.py").open("a") as file:
        file.writelines(f"{name} = {seconds}\n" for name, seconds in limits.items())
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "--rehearse-gpu"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = [line.split() for line in done.stdout.splitlines() if "test_it.py::" in line]
    return {words[1].split("::")[1]: words[0] for words in said if words[0].isupper()}


@pytest.mark.parametrize("kind", ["own", pytest.param("shared", marks=pytest.mark.slow)])
def test_what_takes_long_fails(tmp_path: Path, kind: str) -> None:
    limits = {"FAILS_S": 0.3} if kind == "own" else {"SHARED_FAILS_S": 0.3, "FAILS_S": 60.0}
    own, shared = ("FAILED", "PASSED") if kind == "own" else ("PASSED", "FAILED")
    assert outcomes(tmp_path, **limits) == {
        "test_of_a_shared_fixture": shared,
        "test_works": own,
        "test_has_others_work": own,
        "test_waits": "PASSED",
        "test_says_so": "PASSED",
        "test_of_a_gpu": "PASSED",
    }
