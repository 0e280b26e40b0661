"""Ranks of mpirun that are forked from a process which has imported torch, as in warm_python.

What mpirun starts is a shell that writes down the environment that it was given, and ends as the
forked rank does. Open MPI's ranks find their launcher by that environment alone; MPICH's inherit a
socket, so they cannot be forked elsewhere.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from warm_python import Warm

# Ranks beyond the cores, bound to one, would wait for each other.
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none")
RANK = """
own=$0/$OMPI_COMM_WORLD_RANK
env -0 >"$own.part" && mv "$own.part" "$own.env"
until [ -e "$own.code" ]; do sleep 0.05; done
exit "$(cat "$own.code")"
"""
POLL_S = 0.05


@contextmanager
def warm_ranks(size: int, folder: Path, *arguments: str, **of_python: Any) -> Iterator[list[Warm]]:
    """`mpirun -n SIZE python ARGUMENTS...`, all in `folder`; at the end, they are gone.

    of_python: as Warm takes it.
    """
    meeting = folder / f"mpirun-{size}"
    meeting.mkdir()
    started = [*MPIRUN, "-n", str(size), "sh", "-c", RANK, str(meeting)]
    ranks: list[Warm] = []
    with subprocess.Popen(started, cwd=folder, stdout=subprocess.DEVNULL) as mpirun:
        try:
            for rank in range(size):
                told = meeting / f"{rank}.env"
                while not told.exists():
                    assert mpirun.poll() is None, f"mpirun ended with {mpirun.returncode}"
                    time.sleep(POLL_S)
                words = filter(None, told.read_text().split("\0"))
                environment = dict(word.split("=", 1) for word in words)
                environment["OMP_NUM_THREADS"] = "1"
                ranks.append(Warm(*arguments, cwd=folder, env=environment, **of_python))
            yield ranks
        finally:
            for rank in range(size):
                code = 1
                if rank < len(ranks):
                    ranks[rank].kill()
                    ranks[rank].communicate()
                    code = ranks[rank].wait() & 255
                part = meeting / f"{rank}.code.part"
                part.write_text(str(code))
                part.rename(meeting / f"{rank}.code")
