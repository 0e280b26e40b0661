"""Ranks that are asked to stop, and ranks that die."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import pytest

from gear.train.checkpoint import checkpoints

ENDLESS = (
    "total_steps=10000000",
    "algo.learning_starts=50",
    "algo.batch_size=16",
    "model.hidden=[16]",
    "logger=csv",
    "hydra.run.dir=run",
)
TIMEOUT_S = 300.0  # nobody waits for it: `finish` would not


def wait_for(condition, *processes):
    while not condition():
        for process in processes:
            if process.poll() is not None:
                pytest.fail(f"ended by itself: {process.communicate()}")
        time.sleep(0.05)


def episodes(folder: Path) -> int:
    metrics = folder / "run" / "metrics.csv"
    return metrics.read_text().count("\n") - 1 if metrics.exists() else 0


def test_signal_to_one_rank_stops_all_at_the_same_step(launch, tmp_path):
    processes = launch.by_hand(2, *ENDLESS, "checkpoint_every=0")
    wait_for(lambda: episodes(tmp_path) >= 2, *processes)
    processes[1].send_signal(signal.SIGTERM)
    streams = launch.finish(*processes)
    assert [process.returncode for process in processes] == [143, 143], streams
    assert "gear train checkpoint=run" in streams[0][0]
    assert streams[1] == ("", "")
    (saved,) = checkpoints(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["env_steps"] == saved.step
    assert {saved.state(rank, 2)["counters"]["env_steps"] for rank in range(2)} == {saved.step}


def test_killed_rank_is_named_by_all_others(launch, tmp_path):
    """They exit with one sentence, without a time-out's wait; the run then goes on."""
    processes = launch.by_hand(4, *ENDLESS, "checkpoint_every=400", f"dist.timeout_s={TIMEOUT_S}")
    wait_for(lambda: checkpoints(tmp_path / "run"), *processes)
    killed = processes.pop(2)
    killed.kill()
    streams = launch.finish(*processes)
    sentence = rf"gear: \[transport\] rank 2 \(pid {killed.pid}[^)]*\) has ended: [^\n]+\n"
    for process, (_, stderr) in zip(processes, streams, strict=True):
        assert process.returncode == 2
        assert re.fullmatch(sentence, stderr), stderr

    step = checkpoints(tmp_path / "run")[-1].step + 40
    processes = launch.by_hand(4, "checkpoint=run", f"total_steps={step}")
    streams = launch.finish(*processes)
    assert [process.returncode for process in processes] == [0] * 4, streams
    assert checkpoints(tmp_path / "run")[-1].step == step
