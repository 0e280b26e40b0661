"""Ranks by mpirun, each a process. MPIRUN names that of another MPI, as build/mpich/bin/mpirun."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
REPOSITORY = FOLDER.parents[1]
# Ranks beyond the cores, bound to one, would wait for each other.
OPEN_MPI = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
MPICH = str(REPOSITORY / "build" / "mpich" / "bin" / "mpirun")  # by tools/unpack_mpich.sh

# A `shell` of run_ranks: writes each rank's exit code to $FOLDER/ended-RANK, and outlives both,
# since mpirun ends those that remain when one has ended without MPI_Finalize.
OUTLIVES = """
"$@"
echo $? >"$FOLDER/part-$$"
mv "$FOLDER/part-$$" "$FOLDER/ended-${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"
until [ -e "$FOLDER/ended-0" ] && [ -e "$FOLDER/ended-1" ]; do sleep 0.1; done
"""


@functools.cache
def mpirun(name: str) -> tuple[str, ...]:
    """A launcher, and what it is told on a machine with few cores."""
    said = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
    return (name, *(OPEN_MPI if "Open MPI" in said else ()))


def run_ranks(
    size: int,
    script: str,
    *arguments: str,
    timeout_s: float = 500,
    options: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
    launcher: str | None = None,
    shell: str = "",
) -> subprocess.CompletedProcess[str]:
    """What the ranks of `script`, a file of this folder, wrote and returned. `shell`: what a shell
    does for each rank, whose command is "$@"."""
    program = [sys.executable, str(FOLDER / script), *arguments]
    if shell:
        program = ["sh", "-c", shell, "sh", *program]
    launcher = launcher or os.environ.get("MPIRUN") or "mpirun"
    command = [*mpirun(launcher), *options, "-n", str(size), *program]
    process = subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.terminate()  # mpirun ends what it started when it is asked to
        try:
            output, _ = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        output += f"\nended after {timeout_s} s"
    return subprocess.CompletedProcess(command, process.returncode, output)
