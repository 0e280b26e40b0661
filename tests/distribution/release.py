"""What tools/dist.sh makes: a release's tarball and wheels, of this commit."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from .project import REPOSITORY


def has_commit(root: Path = REPOSITORY) -> bool:
    command = ["git", "rev-parse", "--verify", "--quiet", "HEAD"]
    return subprocess.run(command, cwd=root, capture_output=True, check=False).returncode == 0


def make(*words: str, to: Path, root: Path = REPOSITORY) -> list[str]:
    """What the script says, when it has made those files in `to`."""
    if not has_commit(root):
        pytest.skip("no git clone: a release is made from a commit")
    done = refused(*words, f"--to={to}", root=root)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def refused(*words: str, root: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    """A run that may fail."""
    command = ["tools/dist.sh", *words]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def only(folder: Path, glob: str) -> Path:
    found = sorted(folder.glob(glob))
    assert len(found) == 1, found
    return found[0]


def glibc_of(wheel: Path) -> tuple[int, int]:
    """The oldest that a wheel's name promises to load with."""
    match = re.search(r"-manylinux_(\d+)_(\d+)_\w+\.whl$", wheel.name)
    assert match is not None, wheel.name
    return int(match[1]), int(match[2])
