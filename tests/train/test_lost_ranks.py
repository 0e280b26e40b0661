"""A rank that is killed or hangs while torch, not GEAR, moves tensors: the others name it.

Those of DeepSpeed and Horovod are in distribution/test_train_installed.py.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from train.launched import TRAIN, Launch
from train.saved_data import write_pendulum

from gear.train.record.checkpoint import checkpoints

pytestmark = pytest.mark.subject("trainer")

# A transformer, whose gradients are averaged in the middle of its backward pass.
ENDLESS = (
    *("data=saved", "data.path=replay", "hydra.run.dir=run", "logger=csv", "eval_every=0"),
    *("model.width=16", "model.layers=2", "model.heads=2", "algo.context=4", "algo.warmup=0"),
    *("replay.page_steps=16", "total_steps=10000000", "checkpoint_every=200"),
)
STRATEGIES = ["ddp", "fsdp2"]


def wait_until_they_learn(folder, *processes):
    while not checkpoints(folder / "run"):
        for process in processes:
            assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def lost(folder, dist, signum, timeout_s):
    """(pid of rank 1, which got the signal while both learned; rank 0's exit code; its words)."""
    write_pendulum(folder / "replay")
    launch = Launch(folder)
    try:
        first, second = launch.by_hand(2, *ENDLESS, f"dist.timeout_s={timeout_s}", dist=dist)
        wait_until_they_learn(folder, first, second)
        second.send_signal(signum)
        ((_, stderr),) = launch.finish(first)
    finally:
        launch.close()
    return second.pid, first.returncode, stderr


@pytest.mark.slow
@pytest.mark.parametrize("dist", STRATEGIES)
def test_killed_rank_is_named_at_once(tmp_path, dist):
    """The time-out is an hour, and nobody waits for that."""
    pid, code, said = lost(tmp_path, dist, signal.SIGKILL, 3600)
    assert code == 2, said
    assert re.fullmatch(rf"gear: \[transport\] rank 1 \(pid {pid}[^)]*\) has ended: [^\n]+\n", said)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.frameworks
def test_killed_rank_of_horovod_is_named(launch, tmp_path):
    """By mpirun, which ends the others as they wait in MPI, or by a rank that just then waits for a
    batch of GEAR: whoever sees it first."""
    write_pendulum(tmp_path / "replay")
    mpirun = ("mpirun", "-n", "2", "--oversubscribe", "--allow-run-as-root", sys.executable)
    started = launch.start(*mpirun, *TRAIN, "dist=horovod", *ENDLESS)
    wait_until_they_learn(tmp_path, started)
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
    [second] = [
        int(pid)
        for pid in children
        if b"OMPI_COMM_WORLD_RANK=1\0" in Path(f"/proc/{pid}/environ").read_bytes()
    ]
    os.kill(second, signal.SIGKILL)
    ((_, said),) = launch.finish(started)
    assert started.returncode != 0
    by_mpirun = r"process rank 1 with PID \d+ on node \S+ exited on signal 9"
    by_rank = rf"gear: \[transport\] rank 1 \(pid {second}[^)]*\) has ended: "
    assert re.search(rf"{by_mpirun}|{by_rank}", said), said


@pytest.mark.slow
@pytest.mark.parametrize("dist", STRATEGIES)
def test_rank_that_hangs_is_named_after_the_time_out(tmp_path, dist):
    pid, code, said = lost(tmp_path, dist, signal.SIGSTOP, 25)
    assert code == 2, said
    who = rf"rank 1( \(pid {pid}[^)]*\))?"
    assert re.fullmatch(rf"gear: \[transport\] {who} did not take part [^\n]+\n", said), said
