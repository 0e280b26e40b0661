"""Ranks of `gear train` as processes."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ports import fresh_port
from warm_python import Warm

from gear.train.record.checkpoint import checkpoints

TRAIN = ("-m", "gear.cli.app", "train")
Process = subprocess.Popen | Warm


class Launch:
    """Ranks of `gear train` as processes of their own; all of them are gone at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[Process] = []

    def start(self, *command: str, **variables: str) -> Process:
        """One process in `folder`, its two streams kept apart."""
        # One thread each: the ranks share the cores that the tests have.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", **variables}
        process: Process
        if command[0] == sys.executable and command[1] != "-c":  # a file, or -m
            process = Warm(*command[1:], cwd=self.folder, env=environment)
        else:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        self._started.append(process)
        return process

    def by_hand(
        self, size: int, *overrides: str, of_rank_1: Sequence[str] = (), dist: str = "ddp"
    ) -> list[Process]:
        """One process per rank, told by the configuration where it is."""
        meeting = [f"dist={dist}", f"world_size={size}", f"dist.master_port={fresh_port()}"]
        shared = [*TRAIN, *meeting, *overrides]
        own = [of_rank_1 if rank == 1 else () for rank in range(size)]
        return [
            self.start(sys.executable, *shared, f"rank={rank}", *own[rank]) for rank in range(size)
        ]

    def finish(self, *processes: Process) -> list[tuple[str, str]]:
        """Waits for all; what each wrote to its streams."""
        return [process.communicate(timeout=240) for process in processes]

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


def train_offline(
    folder: Path, size: int, *words: str
) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """The rows of the metrics and the weights at the end of `run`, trained by so many ranks that
    divide a batch of 8."""
    start_offline(folder, size, *words)
    return learned_in(folder / "run")


def start_offline(folder: Path, size: int, *words: str) -> None:
    """Runs that so many ranks train, to their end; the ranks divide a batch of 8."""
    command = [sys.executable, *TRAIN, *words, f"algo.batch_size={8 // size}"]
    # By variables, since a sweep over the strategies has no place for the keys of one.
    meeting = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
    if size > 1:
        meeting["MASTER_PORT"] = str(fresh_port())
    launched = Launch(folder)
    try:
        processes = [launched.start(*command, **meeting, RANK=str(rank)) for rank in range(size)]
        streams = launched.finish(*processes)
        assert [p.returncode for p in processes] == [0] * size, streams
    finally:
        launched.close()


def learned_in(run: Path) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """The rows of a run's metrics, and the weights of its last checkpoint."""
    with (run / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    state = checkpoints(run)[-1].state()
    return rows, state["algorithm"]["trained"]["model"]["model"]
