"""Gradients of ranks on GPUs: NCCL where each has its own, gloo where they share one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ports import fresh_port

WORKER = Path(__file__).with_name("ranks_worker.py")


def start(size: int, device: str, *arguments: str) -> list[subprocess.Popen]:
    port = fresh_port()
    found = []
    for rank in range(size):
        place = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = {**os.environ, **{name: str(value) for name, value in place.items()}}
        command = [sys.executable, str(WORKER), device, *arguments]
        found.append(subprocess.Popen(command, env=environment, stdout=-1, stderr=-1, text=True))
    return found


def finish(processes: list[subprocess.Popen]) -> list[tuple[str, str]]:
    try:
        return [process.communicate(timeout=90) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_means_are_equal_on_all_ranks(gpu) -> None:
    import torch

    gpus = 0 if gpu.rehearsal else torch.cuda.device_count()
    size = max(2, gpus)
    processes = start(size, gpu.device, "live")
    streams = finish(processes)
    assert [process.returncode for process in processes] == [0] * size, streams
    said = [json.loads(stdout) for stdout, _ in streams]
    assert {s["backend"] for s in said} == {"nccl" if gpus >= size else "gloo"}
    if gpus:
        assert [s["device"] for s in said] == [f"cuda:{rank % gpus}" for rank in range(size)]
    assert len({s["digest"] for s in said}) == 1
    assert said[0]["mean"] == pytest.approx(sum(s["sum"] for s in said) / size, abs=1e-3)
    assert [s["first"] for s in said] == [1.0] * size
    # Over NCCL the host does not wait: else the ranks would have waited for each other for ever.
    assert [s.get("averaged", True) for s in said] == [True] * size


def test_rank_that_died_is_named(gpu) -> None:
    processes = start(2, gpu.device, "die")
    streams = finish(processes)
    assert [process.returncode for process in processes] == [2, -9], streams
    error = json.loads(streams[0][0])["error"]
    assert error.startswith(f"[transport] rank 1 (pid {processes[1].pid} on ")
