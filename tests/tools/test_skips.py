"""tools/skips.py: what pytest's reports count."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "tools" / "skips.py"
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(5))
def test_some(number):
    if number > 2:
        pytest.skip("this machine has no gpu")

@pytest.mark.skipif(True, reason="no wandb here")
def test_marked():
    pass

@pytest.mark.xfail(reason="the moon")
def test_expected():
    raise ValueError
"""
WHOLE_FILE = "import pytest\n\npytest.importorskip('venus')\n"
NO_SUCCESS = """
import pytest

@pytest.fixture
def broken():
    raise ValueError

def test_fails():
    assert False

def test_error(broken):
    pass

def test_passes():
    pass
"""


def report(path: Path, **files: str) -> Path:
    """Of pytest on these files."""
    folder = path.with_suffix("")
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, f"--junitxml={path}"], cwd=folder, capture_output=True)
    assert path.exists(), done.stdout
    return path


def printed(*reports: Path) -> list[str]:
    command = [sys.executable, SCRIPT, *reports]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_skips_are_counted_by_reason(tmp_path: Path) -> None:
    first = report(tmp_path / "pytest.xml", a=TESTS, b=WHOLE_FILE)
    second = report(tmp_path / "pytest-frameworks.xml", a="def test_it():\n    pass\n")
    assert printed(first, second, tmp_path / "pytest-other.xml") == [
        "test: 3 passed, 5 skipped: 2 this machine has no gpu, "
        "1 could not import 'venus': No module named 'venus', 1 no wandb here, "
        "1 expected to fail: the moon",
        "test: frameworks: 1 passed, none skipped",
        "test: other: not run",
    ]


def test_failures_are_no_skips(tmp_path: Path) -> None:
    found = report(tmp_path / "pytest.xml", a=NO_SUCCESS)
    assert printed(found) == ["test: 1 passed, 1 failed, 1 ended by errors, none skipped"]
