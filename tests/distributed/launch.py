"""Starts the ranks of a group, plays programs in them, and ends them whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ports import fresh_port

WORKER = Path(__file__).parent / "worker.py"
LAUNCHERS = ("OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "GEAR_")
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Implementation:
    """A way to carry bytes between ranks.

    Attributes:
        transport: as Group.from_env takes it.
        launcher: "threads", "processes" (RANK and WORLD_SIZE by hand) or "mpirun".
    """

    name: str
    transport: str
    launcher: str


IMPLEMENTATIONS = {
    implementation.name: implementation
    for implementation in (
        Implementation("loopback", "", "threads"),
        Implementation("emulated", "", "threads"),
        Implementation("gloo", "group", "processes"),
        Implementation("libfabric", "libfabric", "processes"),
        Implementation("shared_memory", "shared_memory", "processes"),
        Implementation("mpi", "mpi", "mpirun"),
        Implementation("nccl", "auto", "processes"),
        Implementation("fabric", "fabric", "processes"),
    )
}


@dataclass(frozen=True)
class Ended:
    """How a launch ended.

    Attributes:
        codes: exit codes of the processes that were started.
        output: of all of them.
        took_s: from the start to the last exit.
        left_behind: names in /dev/shm.
    """

    folder: Path
    size: int
    codes: list[int]
    output: str
    took_s: float
    left_behind: list[str]

    def finished(self, program: str) -> bool:
        """On all ranks."""
        return all(self._path(rank, program).exists() for rank in range(self.size))

    def _path(self, rank: int, program: str) -> Path:
        return self.folder / f"rank-{rank}" / f"{program}.npz"

    def arrays(self, program: str) -> list[Arrays]:
        """What every rank recorded; fails with what the ranks wrote if one did not get there."""
        return [self.recorded(rank, program) for rank in range(self.size)]

    def recorded(self, rank: int, program: str) -> Arrays:
        path = self._path(rank, program)
        if not path.exists():
            raise AssertionError(f"{program}: {self.why(rank, program)}")
        with np.load(path) as file:
            return {name: file[name] for name in file.files}

    def why(self, rank: int, program: str) -> str:
        errors = {
            number: path.read_text()
            for number in range(self.size)
            if (path := self.folder / f"rank-{number}" / f"{program}.error").exists()
        }
        said = "\n".join(f"---- rank {number}\n{text}" for number, text in errors.items())
        return (
            f"rank {rank} of {self.size} did not finish; exit codes {self.codes} after "
            f"{self.took_s:.1f} s\n{said or self.output[-6000:]}"
        )


def launch(
    implementation: Implementation,
    size: int,
    programs: Sequence[str],
    folder: Path,
    *,
    timeout_s: float = 400,
    group_timeout_s: float = 20,
) -> Ended:
    """Plays the programs, one after the other; `folder` is new."""
    folder.mkdir(parents=True)
    prefix = f"geartest{os.getpid()}x{fresh_port()}"
    job = {
        "implementation": implementation.name,
        "transport": implementation.transport,
        "size": size,
        "folder": str(folder),
        "programs": list(programs),
        "timeout_s": timeout_s - 3,
        "group_timeout_s": group_timeout_s,
    }
    (folder / "job.json").write_text(json.dumps(job))
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(
            ("OMPI_", "PMIX_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "GEAR_")
        )
    } | {"GEAR_SHM_PREFIX": prefix, "GEAR_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environment["GEAR_PACK_BELOW"] = "64"  # some scenarios' rows are packed, others' are read alone
    environment["FI_TCP_IFACE"] = "lo"  # others come and go, as the bridge of a Slurm of tests does
    command = [sys.executable, str(WORKER), str(folder / "job.json")]
    began = time.monotonic()
    processes = []
    with (folder / "output").open("wb") as output:
        for extra, line in _command_lines(implementation, size, command):
            processes.append(
                subprocess.Popen(
                    line,
                    env=environment | extra,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        codes = _wait(processes, began + timeout_s)
    took_s = time.monotonic() - began
    left = [path.name for path in Path("/dev/shm").glob(f"*{prefix}*")]
    for name in left:
        (Path("/dev/shm") / name).unlink(missing_ok=True)
    text = (folder / "output").read_text(errors="replace")
    return Ended(folder, size, codes, text, took_s, left)


def _command_lines(
    implementation: Implementation, size: int, command: list[str]
) -> list[tuple[dict[str, str], list[str]]]:
    if implementation.launcher == "threads":
        return [({}, command)]
    if implementation.launcher == "mpirun":
        mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(size)]
        # Bound to a core, ranks beyond the cores would wait for each other.
        return [({}, [*mpirun, "--bind-to", "none", *command])]
    common = {
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(fresh_port()),
    }
    return [
        (common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, command) for rank in range(size)
    ]


def _wait(processes: list[subprocess.Popen[bytes]], deadline: float) -> list[int]:
    """Until all have ended, or the time is up; nothing that they started lives on."""
    try:
        _wait_until(processes, deadline)
    finally:
        # mpirun ends what it started when it is asked to, not when it is killed.
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in processes:
                if process.poll() is None:
                    os.killpg(process.pid, number)
            _wait_until(processes, time.monotonic() + 3)
    return [process.wait() for process in processes]


def _wait_until(processes: list[subprocess.Popen[bytes]], deadline: float) -> None:
    while time.monotonic() < deadline and any(p.poll() is None for p in processes):
        time.sleep(0.02)
