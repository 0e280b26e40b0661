"""INSTALL's table of TensorBoard's plugins: what TensorBoard of today loads, and what breaks it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PINS = Path(__file__).parents[2] / "requirements" / "constraints.txt"

pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.needs("tensorboard")]

LISTING = """
import json, sys, tensorboard, urllib.request
from tensorboard import default, program

if __name__ == "__main__":  # plugins start processes that import this
    board = program.TensorBoard(plugins=default.get_plugins())
    place = ["--logdir", sys.argv[1], "--host", "127.0.0.1", "--port", "0"]
    board.configure([None, *place, "--load_fast", "false"])
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(board.launch() + "data/plugins_listing", timeout=60) as answer:
        print(json.dumps([tensorboard.__version__, *json.load(answer)]))
"""


def beside(
    package: str, folder: Path, program: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """What a program prints where this package was installed, too: TensorBoard's list of its
    plugins, if no other is given."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "-c", PINS]
    subprocess.run([*install, f"--target={folder / 'more'}", package], check=True, timeout=500)
    if program is None:
        program = folder / "listing.py"
        program.write_text(LISTING)
    return subprocess.run(
        [sys.executable, program, folder],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(folder / "more"), **env},
        timeout=400,  # packages without bytecode, on a busy machine
    )


@pytest.mark.parametrize(
    ("package", "plugin", "is_there"),
    [
        ("torch-tb-profiler==0.4.3", "pytorch_profiler", True),
        ("tensorboard-plugin-profile==2.24.2", "profile", True),
        ("tensorboard-plugin-wit==1.8.1", "whatif", False),
    ],
)
def test_what_tensorboard_lists(package: str, plugin: str, is_there: bool, tmp_path: Path) -> None:
    done = beside(package, tmp_path)
    assert done.returncode == 0, done.stderr
    version, *listed = json.loads(done.stdout.splitlines()[-1])
    assert version == "2.21.0"
    assert "scalars" in listed
    assert (plugin in listed) == is_there


def test_a_package_that_breaks_tensorboard(tmp_path: Path) -> None:
    done = beside("tensorboard-pytorch==0.7.1", tmp_path)
    assert done.returncode == 1
    assert "more/tensorboard/" in done.stderr


def test_the_smoke_test_needs_no_proxy(tmp_path: Path) -> None:
    """build.sh has the site's proxy in the environment; TensorBoard is on this machine."""
    program = Path(__file__).parents[2] / "recipes" / "smoke" / "check_tensorboard.py"
    nowhere = {"http_proxy": "http://127.0.0.1:9", "no_proxy": ""}
    done = beside("torch-tb-profiler==0.4.3", tmp_path, program, **nowhere)
    assert done.returncode == 0, done.stderr
    assert "TensorBoard shows a mean of 3 and, of torch's profiler, Overview" in done.stdout
