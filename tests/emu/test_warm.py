"""The `python` whose processes are forked is one as any, and each process is by itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SAYS = """
import json, os, sys
print(json.dumps([sys.argv, os.getcwd(), os.environ["WORD"], input(), "torch" in sys.modules]))
print("aside", file=sys.stderr)
sys.exit(7)
"""
CHANGES = """
import os, sys
import torch
assert "CHANGED" not in os.environ and "gear" not in sys.modules and torch.get_num_threads() == 1
os.environ["CHANGED"] = "yes"
torch.set_num_threads(2)
import gear
"""
WAITS = """
import os, pathlib, signal, sys, time
signal.signal(int(sys.argv[1]), lambda number, _: sys.exit(number))
pathlib.Path("pid").write_text(str(os.getpid()))
pathlib.Path("ready").touch()
time.sleep(60)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return tmp_path / "program.py"


def waiting(program: Path, warm: Path, number: int) -> subprocess.Popen[bytes]:
    """One that a signal of that number ends with the number as its code."""
    program.write_text(WAITS)
    one = subprocess.Popen([warm / "python", program, str(int(number))], cwd=program.parent)
    while not program.with_name("ready").exists():
        assert one.poll() is None
        time.sleep(0.01)
    return one


def test_words_folder_environment_streams_and_code(program: Path, warm: Path) -> None:
    program.write_text(SAYS)
    done = subprocess.run(
        [warm / "python", program, "one two", "3"],
        cwd=program.parent,
        env=os.environ | {"WORD": "given"},
        input="typed\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 7
    words = [str(program), "one two", "3"]
    assert json.loads(done.stdout) == [words, str(program.parent), "given", "typed", True]
    assert done.stderr == "aside\n"


def test_what_one_changes_the_next_does_not_see(program: Path, warm: Path) -> None:
    program.write_text(CHANGES)
    for _ in range(2):
        subprocess.run([warm / "python", program], timeout=120, check=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_are_passed_on(number: signal.Signals, program: Path, warm: Path) -> None:
    one = waiting(program, warm, number)
    one.send_signal(number)
    assert one.wait(timeout=120) == number


def test_what_is_killed_is_gone(program: Path, warm: Path) -> None:
    one = waiting(program, warm, signal.SIGUSR1)
    forked = Path("/proc", program.with_name("pid").read_text())
    one.kill()
    one.wait(timeout=120)
    until = time.monotonic() + 120
    while forked.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
