"""The Python interpreters of this machine that GEAR supports, for tests of every one."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PYTHONS = ["3.10", "3.11", "3.12", "3.13"]


@functools.cache
def found_python(version: str) -> str | None:
    """An interpreter of `version` that can make a venv: this one, on PATH, or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [
        sys.executable,
        shutil.which(f"python{version}"),
        *map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python3"))),
    ]
    tells = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, candidates):
        told = subprocess.run([candidate, "-c", tells], capture_output=True, text=True, check=False)
        if told.returncode == 0 and told.stdout.strip() == version:
            return candidate
    return None


def python_of(version: str) -> str:
    found = found_python(version)
    if found is None:
        pytest.skip(f"this machine has no Python {version}")
    return found
