"""`gear gpu ps`, over a library that knows this process on two GPUs, and one that is not here."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gear.cli import app

pytest.importorskip("pynvml")
from gear.cli.gpu.ps import HIDDEN

SCRIPT = Path(__file__).parents[2] / "display-gpu-info.sh"
STRANGER = 4194999  # above the largest number of a process


def ps(capsys: pytest.CaptureFixture[str], *more: str) -> list[dict[str, Any]]:
    assert app.main(["gpu", "ps", "--json", *more]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_json_says_whose_and_what_and_how_much(
    capsys: pytest.CaptureFixture[str], three_gpus: pytest.MonkeyPatch
) -> None:
    first, stranger, second = ps(capsys)
    command = first.pop("command")
    words = Path("/proc/self/cmdline").read_bytes().decode().split("\0")
    assert command == " ".join(words).strip()
    assert first == {
        "gpu": 0,
        "pid": os.getpid(),
        "memory_bytes": 3 << 30,
        "utilisation": 87,
        "user": getpass.getuser(),
    }
    assert (second["gpu"], second["pid"], second["utilisation"]) == (1, os.getpid(), None)
    assert (stranger["pid"], stranger["memory_bytes"]) == (STRANGER, None)
    assert stranger["user"] == stranger["command"] == HIDDEN


def test_user(capsys: pytest.CaptureFixture[str], three_gpus: pytest.MonkeyPatch) -> None:
    assert {each["pid"] for each in ps(capsys, "--user")} == {os.getpid()}
    assert {each["pid"] for each in ps(capsys, "--user", getpass.getuser())} == {os.getpid()}
    assert ps(capsys, "--user", "somebody") == []


def test_table(capsys: pytest.CaptureFixture[str], three_gpus: pytest.MonkeyPatch) -> None:
    three_gpus.setenv("COLUMNS", "140")
    assert app.main(["gpu", "ps"]) == 0
    shown = capsys.readouterr().out
    for text in (str(os.getpid()), getpass.getuser(), "3.00 GiB", "87 %", "?", HIDDEN):
        assert text in shown
    assert app.main(["gpu", "ps", "--user", "somebody"]) == 0
    assert capsys.readouterr().out.startswith("no process of somebody runs on the GPUs of ")


def test_watch_goes_on_until_interrupted(
    capsys: pytest.CaptureFixture[str], three_gpus: pytest.MonkeyPatch
) -> None:
    waits = iter([None, None])

    def sleep(seconds: float) -> None:
        if next(waits, "over") == "over":
            raise KeyboardInterrupt

    three_gpus.setattr("gear.cli.gpu.ps.time.sleep", sleep)
    assert app.main(["gpu", "ps", "--watch", "--json"]) == 130
    lines = capsys.readouterr().out.splitlines()
    assert [len(json.loads(line)) for line in lines] == [3, 3, 3]


def test_no_gpu_is_no_error(
    capsys: pytest.CaptureFixture[str], three_gpus: pytest.MonkeyPatch
) -> None:
    three_gpus.setenv("NVML_STUB", "none")
    assert ps(capsys) == []
    assert app.main(["gpu", "ps"]) == 0
    assert capsys.readouterr().out.startswith("no process runs on the GPUs of ")


def test_script_hands_its_words_on(tmp_path: Path) -> None:
    (tmp_path / "gear").write_text('#!/bin/sh\necho "gear $*"\n')
    (tmp_path / "gear").chmod(0o755)
    done = subprocess.run(
        [SCRIPT, "--user"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["gear gpu query", "gear gpu ps --user"]


@pytest.mark.gpu
def test_the_machine_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """While a process has a context there. In a container the driver may hide it."""
    code = "import gear; gear._core.measure_bandwidth(0); print('there', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        found = ps(capsys)
        process.communicate(b"\n")
    mine = [each for each in found if each["pid"] == process.pid]
    assert all(each["user"] == getpass.getuser() and "gear" in each["command"] for each in mine)
    assert {"gpu", "pid", "memory_bytes", "utilisation", "user", "command"} >= {
        key for each in found for key in each
    }
