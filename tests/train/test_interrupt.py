"""Ctrl-C, SIGTERM, SIGUSR1: a checkpoint, a summary, how to go on, and the signal's exit code."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from ports import fresh_port
from train.launched import TRAIN, Launch, Process

from gear.cli.app import main as command
from gear.train import app
from gear.train.app import main
from gear.train.interrupt import Interrupt, Taken, exit_code, taken_outside_of_runs
from gear.train.record.checkpoint import checkpoints

pytestmark = pytest.mark.subject("trainer")


def start(launch: Launch, *overrides: str) -> Process:
    command = [sys.executable, *TRAIN, *overrides, "total_steps=10000000", "logger=csv"]
    command += ["hydra.run.dir=run", "algo.learning_starts=50", "algo.batch_size=16"]
    return launch.start(*command)


def wait_for_episodes(folder: Path, process: Process) -> None:
    metrics = folder / "run" / "metrics.csv"
    while process.poll() is None:
        if metrics.exists() and metrics.read_text().count("\n") >= 3:
            return
        time.sleep(0.05)
    pytest.fail(f"ended by itself: {process.communicate()[0]}")


@pytest.mark.parametrize(
    ("signum", "code"),
    [
        (signal.SIGUSR1, 75),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 75, marks=pytest.mark.slow),
    ],
)
def test_signal_saves_and_exits(launch, tmp_path, monkeypatch, signum, code):
    process = start(launch)
    wait_for_episodes(tmp_path, process)
    process.send_signal(signum)
    ((out, err),) = launch.finish(process)
    assert process.returncode == code, err
    out += err
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
def test_sweep_stops(launch, tmp_path):
    process = start(launch, "--multirun", "seed=0,1", "hydra.sweep.dir=.", "hydra.sweep.subdir=run")
    wait_for_episodes(tmp_path, process)
    process.send_signal(signal.SIGINT)
    ((out, err),) = launch.finish(process)
    assert process.returncode == 130, err
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
        assert exit_code(interrupt.signum) == 130
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_handlers_are_given_back():
    before = signal.getsignal(signal.SIGTERM)
    with Interrupt() as interrupt:
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
    assert interrupt.signum == 0


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("where", ["main", "_application"])
def test_signal_before_the_run_begins(monkeypatch, capfd, where, signum):
    """While the trainer is imported, and while Hydra reads or ranks meet: nothing is lost."""

    def interrupted(*_):
        signal.raise_signal(signum)

    monkeypatch.setattr(app, where, interrupted)
    assert command(["train", "env=cartpole"]) == 75
    said = capfd.readouterr().err
    name = signal.Signals(signum).name
    assert said.startswith(f"gear: [train] {name} before the run began")
    assert said.count("\n") == 1
    assert signal.getsignal(signum) == signal.SIG_DFL


def test_second_signal_of_a_scheduler_ends_the_process_at_once():
    """Not as one that came before the run: it is in the middle of being saved."""
    with taken_outside_of_runs():
        with Interrupt() as interrupt:
            signal.raise_signal(signal.SIGTERM)
            assert interrupt.signum == signal.SIGTERM
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        with pytest.raises(Taken):
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.slow
def test_signal_while_ranks_meet(launch):
    """Rank 0 waits for a rank that is not started."""
    port = fresh_port()
    process = launch.start(
        *(sys.executable, *TRAIN, "dist=ddp", "env=cartpole", "world_size=2", "rank=0"),
        *(f"dist.master_port={port}", "dist.timeout_s=3600"),
    )
    listens = re.compile(f":{port:04X} 0+:0000 0A")
    while not any(listens.search(Path(f"/proc/net/{t}").read_text()) for t in ("tcp", "tcp6")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    ((_, stderr),) = launch.finish(process)
    assert process.returncode == 75, stderr
    assert stderr.startswith("gear: [train] SIGTERM before the run began"), stderr
    assert stderr.count("\n") == 1, stderr
