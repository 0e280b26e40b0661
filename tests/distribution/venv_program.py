"""Programs of this clone's .venv, such as its CMake."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from .project import REPOSITORY


def by_venv(*command: str | Path) -> str:
    """What it says, both streams, with .venv first on PATH; fails where it ends badly."""
    done = subprocess.run(
        command,
        env={**os.environ, "PATH": f"{REPOSITORY}/.venv/bin:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
