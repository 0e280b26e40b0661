"""Ranks of `gear train` as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ports import fresh_port

TRAIN = ("-m", "gear.cli.app", "train")


class Launch:
    """Ranks of `gear train dist=ddp` as processes of their own; all of them are gone at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen] = []

    def start(self, *command: str) -> subprocess.Popen:
        """One process in `folder`, its two streams kept apart."""
        # One thread each: the ranks share the cores that the tests have.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
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
        self, size: int, *overrides: str, of_rank_1: Sequence[str] = ()
    ) -> list[subprocess.Popen]:
        """One process per rank, told by the configuration where it is."""
        meeting = ["dist=ddp", f"world_size={size}", f"dist.master_port={fresh_port()}"]
        shared = [*TRAIN, *meeting, *overrides]
        own = [of_rank_1 if rank == 1 else () for rank in range(size)]
        return [
            self.start(sys.executable, *shared, f"rank={rank}", *own[rank]) for rank in range(size)
        ]

    def finish(self, *processes: subprocess.Popen) -> list[tuple[str, str]]:
        """Waits for all; what each wrote to its streams."""
        return [process.communicate(timeout=110) for process in processes]

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()
