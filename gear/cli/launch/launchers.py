"""Which launcher starts the ranks: mpirun, srun or torchrun, by the backend and by what is here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gear.errors import InvalidArgument
from gear_mpi.extension import libraries, mpi_of, torch_version

BACKENDS = ("gear_mpi", "gloo", "nccl")
LAUNCHERS = ("mpirun", "srun", "torchrun")
RANK_SCRIPT = str(Path(__file__).with_name("rank.sh"))
# Of Open MPI, of MPICH and those after it, of PMIx.
MPI_RANKS = "OMPI_COMM_WORLD_RANK PMI_RANK PMIX_RANK"


@dataclass(frozen=True)
class Launcher:
    """How the ranks are started.

    Attributes:
        command: what starts so many processes of the words that follow it.
        variables: names of those that may hold a rank's number.
        reason: one sentence, for the user.
    """

    command: tuple[str, ...]
    variables: str
    reason: str

    def line(self, logs: Path, words: list[str]) -> list[str]:
        return [*self.command, "sh", RANK_SCRIPT, str(logs), self.variables, *words]


def choose(size: int, backend: str | None, launcher: str | None, options: list[str]) -> Launcher:
    """The launcher of `size` ranks; None: what is here decides.

    Raises InvalidArgument if it is not here, or cannot start ranks of that backend.
    """
    reason = ""
    if backend is None:
        backend, reason = _backend_for(launcher)
    if backend == "gear_mpi":
        mpi = _mpi_of_extension()
        name = launcher or _mpi_launcher()
        if name == "torchrun":
            raise InvalidArgument(
                "[run] --launcher torchrun: mpirun and srun start ranks of gear_mpi: give one of "
                "them, or --backend gloo"
            )
        _must_be_here(name)
        reason = reason or f"for gear_mpi of {mpi}"
    else:
        name = launcher or "torchrun"
        if name != "torchrun":
            raise InvalidArgument(
                f"[run] --launcher {name}: torchrun tells ranks of {backend} where they meet: "
                "leave --launcher out, or give --backend gear_mpi"
            )
        reason = reason or f"for {backend}, on this machine alone"
    return _made(name, size, options, reason)


def _made(name: str, size: int, options: list[str], reason: str) -> Launcher:
    if name == "srun":
        where = f"in job {os.environ['SLURM_JOB_ID']} " if "SLURM_JOB_ID" in os.environ else ""
        # Without it the others go on, and wait for the one that is gone.
        command = ("srun", f"--ntasks={size}", "--kill-on-bad-exit=1", *options)
        return Launcher(command, "SLURM_PROCID", f"by srun {where}{reason}")
    if name == "mpirun":
        command = ("mpirun", "-n", str(size), *options)
        return Launcher(command, MPI_RANKS, f"by {_mpirun()} {reason}")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    command = (*torchrun, f"--nproc-per-node={size}", *options, "--no-python")
    return Launcher(command, "RANK", f"by torchrun {reason}")


def _backend_for(launcher: str | None) -> tuple[str, str]:
    """Where the user names none: gear_mpi if it is built and can be started, else gloo."""
    if launcher is not None:
        return ("gloo" if launcher == "torchrun" else "gear_mpi"), "as --launcher says"
    try:
        mpi = _mpi_of_extension()
        _must_be_here(_mpi_launcher())
    except InvalidArgument as error:
        why = str(error).removeprefix("[run] ").split(":")[0]
        return "gloo", f"for gloo, on this machine alone, because {why}"
    return "gear_mpi", f"for gear_mpi of {mpi}, which is here"


def _mpi_of_extension() -> str:
    version = torch_version()
    if not version:
        raise InvalidArgument("[run] torch is not installed: pip install 'gear-replay[torch]'")
    found = libraries(version)
    if not found:
        raise InvalidArgument(
            f"[run] gear_mpi has not been built for torch {version}: run tools/c10d.sh in GEAR's "
            "sources with an MPI's mpicxx on PATH, or give --backend gloo"
        )
    return " and ".join(dict.fromkeys(mpi_of(library) for library in found))


def _mpi_launcher() -> str:
    in_job = "SLURM_JOB_ID" in os.environ and shutil.which("srun") is not None
    return "srun" if in_job else "mpirun"


def _must_be_here(name: str) -> None:
    if shutil.which(name) is None:
        raise InvalidArgument(
            f"[run] there is no {name} on PATH: load the module of the MPI, start it in a job of "
            "Slurm, or give --backend gloo"
        )


def _mpirun() -> str:
    """What mpirun says it is: "mpirun (Open MPI) 4.1.4", "mpirun (Hydra 4.0.2)" of MPICH."""
    try:
        said = subprocess.run(
            ["mpirun", "--version"], capture_output=True, text=True, timeout=60, check=False
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    first = said.splitlines()[0] if said else "mpirun"
    if not first.startswith("HYDRA"):
        return first
    version = re.search(r"^\s*Version:\s*(\S+)", said, re.M)
    return f"mpirun (Hydra {version[1]})" if version else "mpirun (Hydra)"
