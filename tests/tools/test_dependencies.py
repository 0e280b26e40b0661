"""tools/dependencies.py: what is installed before GEAR is built."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "tools" / "dependencies.py"
PROJECT = """
[project]
name = "toy"
dependencies = ["numpy>=1"]

[project.optional-dependencies]
a = ["click>=8", "toy[b, c]"]
b = ["rich; python_version >= '3.10'", "click>=8"]
c = ["toys[d]"]
dev = ["pytest", "toy[a]"]
"""


def printed(folder: Path, extras: str) -> list[str]:
    (folder / "tools").mkdir()
    (folder / "tools" / SCRIPT.name).write_text(SCRIPT.read_text())
    (folder / "pyproject.toml").write_text(PROJECT)
    done = subprocess.run(
        [sys.executable, folder / "tools" / SCRIPT.name, extras],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_extras_that_name_extras_are_followed(tmp_path: Path) -> None:
    assert printed(tmp_path, "a,dev") == [
        "numpy>=1",
        "click>=8",
        "rich; python_version >= '3.10'",
        "toys[d]",
        "pytest",
    ]


def test_without_an_extra(tmp_path: Path) -> None:
    assert printed(tmp_path, "") == ["numpy>=1"]
