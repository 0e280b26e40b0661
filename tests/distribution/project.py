"""What the project says of itself, and a small project of the same build in its place."""

from __future__ import annotations

import atexit
import functools
import re
import shutil
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PYPROJECT = (REPOSITORY / "pyproject.toml").read_text()


def stated(key: str) -> str:
    """The first `key = "value"` of pyproject.toml."""
    found = re.search(rf'^{key} = "(.*)"$', PYPROJECT, re.MULTILINE)
    assert found is not None
    return found[1]


VERSION = stated("version")
NAME = f"{VERSION}-cpu"  # of an installation without CUDA: gear/NAME is what users load
DISTRIBUTION = stated("name").replace("-", "_")  # as in names of wheels and of their metadata

# It says where it lies and what it is given, and waits for a file if told to: until=FILE.
APP = """
import os
import sys
import time

import gear


def main():
    print("toy", os.path.dirname(gear.__file__), *sys.argv[1:], flush=True)
    for word in sys.argv:
        while word.startswith("until=") and not os.path.exists(word[6:]):
            time.sleep(0.1)
    return 0
"""
TOY = "__version__ = '{version}'\n\n\ndef check_visible_device():\n    pass\n"


@functools.cache
def toy_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="gear-toy-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def toy_source(version: str) -> Path:
    """The sources of that version, a toy in the place of GEAR: it needs click, and no compiler."""
    source = toy_folder() / version
    for name in ("recipes", "modulefiles", "slurm", "requirements", "examples", "process_group"):
        shutil.copytree(REPOSITORY / name, source / name)
    for name in ("README.md", "LICENSE", "extend-venv-activate", "display-gpu-info.sh"):
        shutil.copy2(REPOSITORY / name, source / name)
    for name in ("csrc", "cmake", "gear/cli", "tools"):
        (source / name).mkdir(parents=True)
    (source / "tools" / "c10d.sh").touch()  # a small site has no torch to compile it for
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(gear LANGUAGES NONE)\n"
    )
    (source / "gear" / "__init__.py").write_text(TOY.format(version=version))
    (source / "gear" / "cli" / "__init__.py").touch()
    (source / "gear" / "cli" / "app.py").write_text(APP)
    (source / "recipes" / "smoke" / "check_gear.py").write_text("import gear\n")
    text = PYPROJECT.replace(f'version = "{VERSION}"', f'version = "{version}"')
    text = re.sub(r"^dependencies = \[.*?\]$", "dependencies = []", text, flags=re.M | re.S)
    text = re.sub(r"^cli = \[.*?\]$", 'cli = ["click>=8.1"]', text, flags=re.M | re.S)
    assert 'cli = ["click>=8.1"]\n' in text
    (source / "pyproject.toml").write_text(text)
    return source
