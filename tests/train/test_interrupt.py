"""Ctrl-C and SIGTERM: a checkpoint, a summary, how to go on, and the exit code of the signal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gear.train.app import main
from gear.train.checkpoint import checkpoints
from gear.train.interrupt import Interrupt

PROGRAM = "import sys; from gear.train.app import main; sys.exit(main(sys.argv[1:]))"


def start(folder: Path, *overrides: str) -> subprocess.Popen:
    command = [sys.executable, "-c", PROGRAM, *overrides, "total_steps=10000000", "logger=csv"]
    command += ["hydra.run.dir=run", "algo.learning_starts=50", "algo.batch_size=16"]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_for_episodes(folder: Path, process: subprocess.Popen) -> None:
    metrics = folder / "run" / "metrics.csv"
    while process.poll() is None:
        if metrics.exists() and metrics.read_text().count("\n") >= 3:
            return
        time.sleep(0.05)
    pytest.fail(f"ended by itself: {process.communicate()[0]}")


@pytest.mark.parametrize(
    ("signum", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_signal_saves_and_exits(tmp_path, monkeypatch, signum, code):
    process = start(tmp_path)
    wait_for_episodes(tmp_path, process)
    process.send_signal(signum)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == code, out
    assert "Traceback" not in out
    assert "gear train checkpoint=run" in out
    (saved,) = checkpoints(tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["env_steps"] == saved.step

    monkeypatch.chdir(tmp_path)
    more = saved.step + 20
    assert main(["checkpoint=run", f"total_steps={more}"]) == 0
    assert checkpoints(tmp_path / "run")[-1].step == more


@pytest.mark.slow
def test_sweep_stops(tmp_path):
    process = start(
        tmp_path, "--multirun", "seed=0,1", "hydra.sweep.dir=.", "hydra.sweep.subdir=run"
    )
    wait_for_episodes(tmp_path, process)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    assert "seed 1" not in out


@pytest.fixture
def interruptible():
    """What runs in a shell's background begins with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_second_signal_aborts():
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert interrupt.exit_code == 130
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_handlers_are_given_back():
    before = signal.getsignal(signal.SIGTERM)
    with Interrupt() as interrupt:
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
    assert interrupt.exit_code == 0
