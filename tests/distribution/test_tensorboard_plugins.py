"""INSTALL's table of TensorBoard's plugins: what TensorBoard of today loads, and what breaks it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.needs("tensorboard")]

LISTING = """
import json, sys, urllib.request
from tensorboard import default, program

if __name__ == "__main__":  # plugins start processes that import this
    board = program.TensorBoard(plugins=default.get_plugins())
    place = ["--logdir", sys.argv[1], "--host", "127.0.0.1", "--port", "0"]
    board.configure([None, *place, "--load_fast", "false"])
    with urllib.request.urlopen(board.launch() + "data/plugins_listing") as answer:
        print(json.dumps(list(json.load(answer))))
"""


def beside(package: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """TensorBoard's list of its plugins where this package was installed, too."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
    subprocess.run([*install, f"--target={folder / 'more'}", package], check=True, timeout=500)
    program = folder / "listing.py"
    program.write_text(LISTING)
    return subprocess.run(
        [sys.executable, program, folder],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(folder / "more")},
        timeout=100,
    )


@pytest.mark.parametrize(
    ("package", "plugin"),
    [
        ("torch-tb-profiler==0.4.3", "pytorch_profiler"),
        ("tensorboard-plugin-profile==2.24.2", "profile"),
    ],
)
def test_a_plugin_that_is_listed(package: str, plugin: str, tmp_path: Path) -> None:
    done = beside(package, tmp_path)
    assert done.returncode == 0, done.stderr
    assert {"scalars", plugin} <= set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("package", "why"),
    [
        ("tensorboard-plugin-wit==1.8.1", "No module named 'pkg_resources'"),
        ("tensorboard-pytorch==0.7.1", "more/tensorboard/"),
    ],
)
def test_a_package_that_breaks_tensorboard(package: str, why: str, tmp_path: Path) -> None:
    done = beside(package, tmp_path)
    assert done.returncode == 1
    assert why in done.stderr
