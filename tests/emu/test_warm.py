"""The `python` whose processes are forked is one as any, and each process is by itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
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
def note(number, _):
    with open("signals", "a") as file:
        file.write(f"{number}\\n")
    if number == signal.SIGTERM:
        sys.exit(75)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, note)
pathlib.Path("pid").write_text(str(os.getpid()))
pathlib.Path("ready").touch()
while True:
    time.sleep(60)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return tmp_path / "program.py"


def until(is_so: Callable[[], bool]) -> None:
    """Waits; the test's time limit ends it."""
    while not is_so():
        time.sleep(0.01)


def waiting(program: Path, warm: Path) -> subprocess.Popen[bytes]:
    """One that notes signals, and ends by SIGTERM."""
    program.write_text(WAITS)
    one = subprocess.Popen([warm / "python", program], cwd=program.parent)
    until(lambda: program.with_name("ready").exists() or one.poll() is not None)
    assert one.poll() is None
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


def test_what_is_made_up_differs_from_process_to_process(program: Path, warm: Path) -> None:
    program.write_text("import random, numpy; print(random.random(), numpy.random.random())")
    said = [
        subprocess.check_output([warm / "python", program], text=True, timeout=120).split()
        for _ in range(2)
    ]
    assert all(one != other for one, other in zip(*said, strict=True))


def test_signals_are_passed_on(program: Path, warm: Path) -> None:
    one = waiting(program, warm)
    noted = program.with_name("signals")
    for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGTERM):
        noted.unlink(missing_ok=True)
        one.send_signal(number)
        until(lambda told=f"{int(number)}\n": noted.exists() and noted.read_text() == told)
    assert one.wait(timeout=120) == 75


def test_what_is_killed_is_gone(program: Path, warm: Path) -> None:
    one = waiting(program, warm)
    forked = Path("/proc", program.with_name("pid").read_text())
    assert forked.exists()
    one.kill()
    one.wait(timeout=120)
    until(lambda: not forked.exists())
