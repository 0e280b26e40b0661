"""Ranks that are asked to stop, and ranks that die."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
from ports import fresh_port
from train.launched import TRAIN

from gear.train.record.checkpoint import checkpoints

pytestmark = pytest.mark.subject("trainer")

ENDLESS = (
    "total_steps=10000000",
    "algo.learning_starts=50",
    "algo.batch_size=16",
    "model.hidden=[16]",
    "logger=csv",
    "hydra.run.dir=run",
)


def wait_for(condition, *processes):
    while not condition():
        for process in processes:
            if process.poll() is not None:
                pytest.fail(f"ended by itself: {process.communicate()}")
        time.sleep(0.05)


def episodes(folder: Path) -> int:
    metrics = folder / "run" / "metrics.csv"
    return metrics.read_text().count("\n") - 1 if metrics.exists() else 0


@pytest.mark.slow
def test_signal_to_one_rank_stops_all_at_the_same_step(launch, tmp_path):
    processes = launch.by_hand(2, *ENDLESS, "checkpoint_every=0")
    wait_for(lambda: episodes(tmp_path) >= 2, *processes)
    processes[1].send_signal(signal.SIGTERM)
    streams = launch.finish(*processes)
    assert [process.returncode for process in processes] == [75, 75], streams
    assert "gear train checkpoint=run" in streams[0][0]
    assert streams[1] == ("", "")
    (saved,) = checkpoints(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["env_steps"] == saved.step
    assert {saved.state(rank, 2)["counters"]["env_steps"] for rank in range(2)} == {saved.step}


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_killed_rank_is_named_by_all_others(launch, tmp_path, size):
    """They exit with one sentence; the time-out is an hour, and none of them waits for that. Of
    three, the same number goes on from what they saved."""
    processes = launch.by_hand(size, *ENDLESS, "checkpoint_every=120", "dist.timeout_s=3600")
    wait_for(lambda: checkpoints(tmp_path / "run"), *processes)
    killed = processes.pop(1)
    killed.kill()
    streams = launch.finish(*processes)
    sentence = rf"gear: \[transport\] rank 1 \(pid {killed.pid}[^)]*\) has ended: [^\n]+\n"
    for process, (_, stderr) in zip(processes, streams, strict=True):
        assert process.returncode == 2
        assert re.fullmatch(sentence, stderr), stderr
    if size == 2:
        return
    step = checkpoints(tmp_path / "run")[-1].step + 30
    processes = launch.by_hand(3, "checkpoint=run", f"total_steps={step}")
    streams = launch.finish(*processes)
    assert [process.returncode for process in processes] == [0] * 3, streams
    assert checkpoints(tmp_path / "run")[-1].step == step


@pytest.mark.parametrize(
    ("word", "says", "others"),
    [
        # Hydra refuses it, the run does, and the ranks do when they have met.
        ("algo.optim.lr=0.01", r"gear: \[train\] .*optim", "did not start"),
        pytest.param("checkpoint=/nowhere", "/nowhere", "did not start", marks=pytest.mark.slow),
        pytest.param(
            "optim.lr=0.5", "", "optim.lr is .* on rank 0, 0.5 on rank", marks=pytest.mark.slow
        ),
    ],
)
def test_what_one_rank_alone_is_told_ends_the_others_at_once(launch, word, says, others):
    """The time-out is an hour, and none of them waits for that."""
    processes = launch.by_hand(2, *ENDLESS, "dist.timeout_s=3600", of_rank_1=[word])
    (_, first), (_, second) = launch.finish(*processes)
    assert [process.returncode for process in processes] == [2, 2], (first, second)
    assert re.search(others, first), first
    assert re.search(says, second), second


@pytest.mark.slow
def test_meeting_that_cannot_be_ends_with_one_sentence(launch):
    """Nobody listens there, the machine has no address, or another program has the port."""
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        cases = {
            1: (f"dist.master_port={fresh_port()}", "rank 1 of 3 found no rank 0 at"),
            2: ("dist.master_addr=no-such-machine.invalid", "no-such-machine.invalid"),
            0: (f"dist.master_port={other.getsockname()[1]}", "in use"),
        }
        train = [sys.executable, *TRAIN, "dist=ddp", "world_size=3", "dist.timeout_s=4", *ENDLESS]
        processes = [launch.start(*train, f"rank={r}", case[0]) for r, case in cases.items()]
        streams = launch.finish(*processes)
    for process, (_, stderr), (_, says) in zip(processes, streams, cases.values(), strict=True):
        assert process.returncode == 2, stderr
        assert re.fullmatch(r"gear: \[\w+\] [^\n]+\n", stderr), stderr
        assert re.search(says, stderr), stderr
