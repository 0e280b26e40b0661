"""`gear gpu ps`, over a library that knows this process on two GPUs, and one that is not here.

That library stands in for the driver's (nvml_stub.c). The tests marked `gpu`, which
tests/gpu/run.sh runs, ask the driver, and compare with nvidia-smi.
"""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

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


# With a context on GPU 0: idle until it is told to work, which it does until it is killed.
PROCESS = """import sys, torch
a = torch.randn(4096, 4096, device="cuda")
torch.cuda.synchronize()
print("there", flush=True)
sys.stdin.readline()
while True:
    a = (a @ a).clamp(-1, 1)
"""


@pytest.fixture
def running() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        yield process
        process.kill()


def memory_by_nvidia_smi() -> dict[tuple[int, int], int | None]:
    """(GPU, process) -> MiB that it has of the GPU's memory, None where the driver tells none."""
    done = subprocess.run(["nvidia-smi", "-q", "-x"], stdout=subprocess.PIPE, check=True)
    found: dict[tuple[int, int], int | None] = {}
    for index, gpu in enumerate(ElementTree.fromstring(done.stdout).iter("gpu")):
        for each in gpu.iter("process_info"):
            memory = each.findtext("used_memory", "").removesuffix(" MiB")
            pid = int(each.findtext("pid", ""))
            found[index, pid] = int(memory) if memory.isdigit() else None
    return found


def utilisation_by_nvidia_smi() -> dict[tuple[int, int], int]:
    """(GPU, process) -> percent of the time in which a kernel of it ran, where the driver tells."""
    command = ["nvidia-smi", "pmon", "-c", "1", "-s", "u"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    return {(int(gpu), int(pid)): int(sm) for gpu, pid, _, sm, *_ in rows if sm.isdigit()}


@pytest.mark.gpu
@pytest.mark.needs("torch")
def test_processes_and_their_memory_are_those_of_nvidia_smi(
    capsys: pytest.CaptureFixture[str], running: subprocess.Popen[bytes]
) -> None:
    """Of the process of this test, and who else was there before and after: others come and go."""
    before, found, after = memory_by_nvidia_smi(), ps(capsys), memory_by_nvidia_smi()
    shown = {(each["gpu"], each["pid"]): each for each in found}
    assert before.keys() & after.keys() <= shown.keys() <= before.keys() | after.keys()
    mine = {place: memory for place, memory in after.items() if place[1] == running.pid}
    if not mine:
        pytest.skip("in this container nvidia-smi does not show the process of this test")
    for place, memory in mine.items():
        assert shown[place]["memory_bytes"] >> 20 == memory
        assert shown[place]["user"] == getpass.getuser()
        assert "torch.randn" in shown[place]["command"]


@pytest.mark.gpu
@pytest.mark.needs("torch")
def test_a_busy_process_is_busy_for_nvidia_smi_too(
    capsys: pytest.CaptureFixture[str], running: subprocess.Popen[bytes]
) -> None:
    """Others may use the GPU beside it, so that shares change from sample to sample."""
    assert running.stdin is not None
    running.stdin.write(b"\n")
    running.stdin.flush()
    seen = []
    for _ in range(20):  # a second each: nvidia-smi watches for that long
        theirs = utilisation_by_nvidia_smi().get((0, running.pid), 0)
        own = {each["pid"]: each["utilisation"] for each in ps(capsys) if each["gpu"] == 0}
        seen.append((theirs, own.get(running.pid)))
        if theirs >= 20 and (own.get(running.pid) or 0) >= 20:
            return
    if all(theirs == 0 for theirs, _ in seen):
        pytest.skip("here nvidia-smi does not tell how busy the process of this test is")
    pytest.fail(f"nvidia-smi and gear, in percent: {seen}")
