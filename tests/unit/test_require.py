"""Resource markers: skipped where the resource is absent, failed where --require asks for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PYTEST_INI = """[pytest]
markers =
    site: needs a named site
    gpus(n): needs n GPUs
"""
TESTS = """
import pytest

@pytest.mark.site
def test_site():
    pass

@pytest.mark.gpus(1000)
def test_gpus():
    pass
"""


@pytest.mark.parametrize(
    ("site", "arguments", "code", "summary"),
    [
        (None, [], 0, "2 skipped"),
        ("alps", [], 0, "1 passed, 1 skipped"),
        (None, ["--require=site"], 1, "1 skipped, 1 error"),
        ("alps", ["--require=site,gpu"], 1, "1 passed, 1 error"),
        (None, ["--require=moon"], 4, "unknown ['moon']"),
    ],
)
def test_require(
    tmp_path: Path, site: str | None, arguments: list[str], code: int, summary: str
) -> None:
    (tmp_path / "pytest.ini").write_text(PYTEST_INI)
    (tmp_path / "test_resources.py").write_text(TESTS)
    for name in ("conftest.py", "slowness.py", "warm_python.py"):
        shutil.copy(Path(__file__).parents[1] / name, tmp_path)
    environment = {name: value for name, value in os.environ.items() if name != "GEAR_SITE"}
    if site:
        environment["GEAR_SITE"] = site
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert summary in done.stdout + done.stderr
