"""What the environment of a process says about the launcher that started it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from gear import _core
from gear.errors import InvalidArgument

# Ports that Linux does not give to outgoing connections (from 32768 on).
FIRST_PORT, NUM_PORTS = 20000, 12000


@dataclass(frozen=True)
class Launch:
    """How this process was started, and how its ranks find each other.

    Attributes:
        launcher: ``"single"``, ``"torchrun"``, ``"horovodrun"``, ``"mpirun"``, ``"srun"`` or
            ``"environment"``.
        rank, size: of the launcher's processes; size 0: MPI knows (``PMIX_RANK`` tells no size).
        via: ``"none"`` (one process), ``"store"`` (at `address`), ``"mpi"``, ``"horovod"``.
        address, port: where rank 0 serves the store.
        found: the variables that say so, for the log.
    """

    launcher: str
    rank: int
    size: int
    via: str
    address: str = ""
    port: int = 0
    found: str = ""

    @property
    def mine(self) -> str:
        """This rank, for messages."""
        return f"rank {self.rank} of {self.size}" if self.size else f"rank {self.rank}"

    @property
    def advice(self) -> str:
        """What to do where the other ranks do not come: a shell that a launcher gave, as `srun
        --pty bash` does, has the variables of several ranks and is one process."""
        size = self.size or "N"
        together = START.get(self.launcher, "with RANK from 0 to WORLD_SIZE - 1").format(size=size)
        return (
            f"{self.found} say that {self.launcher} started {self.size or 'more'} ranks; if they "
            f"run, look at their output; if not, start all of them together, {together}, or give "
            f"this process {ALONE}, by which it is alone"
        )


# How all ranks are started, by launcher.
START = {
    "srun": "as by `srun -n {size} python ...`",
    "mpirun": "as by `mpirun -n {size} python ...`",
    "horovodrun": "as by `horovodrun -np {size} python ...`",
    "torchrun": "as by `torchrun ...`, on every node",
}
ALONE = "RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost"  # comes before what launchers set

OWN_MPI = "GEAR's MPI"

SINGLE = Launch("single", 0, 1, "none")

# Variables of rank and size that MPI launchers set, by the library that reads them.
MPI_VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI, Cray
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),  # MVAPICH
)


def installed(package: str) -> bool:
    """Whether it can be imported, or is an MPI of GEAR's (OWN_MPI); nothing is imported."""
    if package == OWN_MPI:
        return bool(_core.build_info()["mpi"])
    return find_spec(package) is not None


def find_launch(env: Mapping[str, str], installed: Callable[[str], bool]) -> Launch:
    """The innermost launcher that `env` shows.

    A complete set of ``RANK``, ``WORLD_SIZE`` and ``MASTER_ADDR`` is what torch.distributed itself
    would go by, so it comes before the variables of mpirun and srun, which reach into what they
    start (a torchrun or DeepSpeed launcher on every node).

    Args:
        installed: whether a package can be imported: ``"mpi4py"``, ``"horovod"``; or whether GEAR
            was built with an MPI: OWN_MPI.

    Raises:
        InvalidArgument: a variable that is no number, out of range or without its partner, or ranks
            that nothing installed can connect.
    """
    plain = _rank_and_size(env, "RANK", "WORLD_SIZE")
    if plain and ("TORCHELASTIC_RUN_ID" in env or env.get("MASTER_ADDR")):
        launcher = "torchrun" if "TORCHELASTIC_RUN_ID" in env else "environment"
        return _at_store(env, launcher, plain, "RANK, WORLD_SIZE")
    horovod = _rank_and_size(env, "HOROVOD_RANK", "HOROVOD_SIZE")
    if horovod:
        return _by_horovod(env, installed, horovod)
    step = _slurm_step(env)
    mpi = _by_mpi(env, installed, step)
    if mpi:
        return mpi
    if step:
        return _at_store(env, "srun", step, "SLURM_PROCID, SLURM_STEP_NUM_TASKS")
    if plain:
        return _at_store(env, "environment", plain, "RANK, WORLD_SIZE")
    return SINGLE


def is_in_shell(env: Mapping[str, str]) -> bool:
    """Whether the step of Slurm has a terminal, as that of a shell has, whose other tasks have
    ended long ago, and also that of a program of all tasks."""
    return "SLURM_PTY_PORT" in env


def launcher_name(size: int) -> str:
    """The launcher of ranks that something else has connected already."""
    try:
        launch = find_launch(os.environ, lambda _: True)
    except InvalidArgument:
        launch = SINGLE
    if launch.size == size or launch.size == 0:
        return launch.launcher
    return "single" if size == 1 else "environment"


def place_in_mpi(env: Mapping[str, str]) -> tuple[int, int] | None:
    """(rank, size) in MPI_COMM_WORLD, as the starter of MPI says them; None: it does not."""
    for rank_name, size_name in MPI_VARIABLES:
        place = _rank_and_size(env, rank_name, size_name)
        if place is not None:
            return place
    return None


def _by_horovod(
    env: Mapping[str, str], installed: Callable[[str], bool], place: tuple[int, int]
) -> Launch:
    if place[1] == 1 or not installed("horovod"):
        return _at_store(env, "horovodrun", place, "HOROVOD_RANK, HOROVOD_SIZE")
    return Launch("horovodrun", *place, "horovod", found="HOROVOD_RANK, HOROVOD_SIZE")


def _by_mpi(
    env: Mapping[str, str], installed: Callable[[str], bool], step: tuple[int, int] | None
) -> Launch | None:
    by_mpi = installed("mpi4py") or installed(OWN_MPI)
    for rank_name, size_name in MPI_VARIABLES:
        place = _rank_and_size(env, rank_name, size_name)
        if place is None:
            continue
        by_srun = place == step and rank_name == "PMI_RANK"  # srun --mpi=pmi2 sets both
        launcher, found = "srun" if by_srun else "mpirun", f"{rank_name}, {size_name}"
        if place[1] > 1 and by_mpi:
            return Launch(launcher, *place, "mpi", found=found)
        return None if by_srun else _at_store(env, launcher, place, found)
    rank = _number(env, "PMIX_RANK", 0)
    if rank is None:
        return None
    if step:  # srun --mpi=pmix: Slurm tells the size
        if step[1] > 1 and by_mpi:
            return Launch("srun", *step, "mpi", found="PMIX_RANK, SLURM_STEP_NUM_TASKS")
        return None
    if by_mpi:
        return Launch("mpirun", rank, 0, "mpi", found="PMIX_RANK")
    raise InvalidArgument(
        f"[group] PMIX_RANK={rank} tells the rank but not the number of ranks: install mpi4py, "
        "which knows it, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
    )


def _at_store(
    env: Mapping[str, str],
    launcher: str,
    place: tuple[int, int],
    found: str,
) -> Launch:
    """Ranks that meet at a store."""
    rank, size = place
    if size == 1:
        return Launch(launcher, 0, 1, "none", found=found)
    address, port = _meeting_point(env, launcher, size, found)
    return Launch(launcher, rank, size, "store", address, port, found)


def _meeting_point(env: Mapping[str, str], launcher: str, size: int, found: str) -> tuple[str, int]:
    address = env.get("MASTER_ADDR", "")
    port = _number(env, "MASTER_PORT", 1, 65535)
    if launcher == "srun":
        nodes = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST", "")
        address = address or first_host(nodes)
        port = port or slurm_port(env)
    if not address:
        raise InvalidArgument(
            f"[group] MASTER_ADDR is not set, and {found} say that {size} ranks meet on the host "
            "of rank 0: set MASTER_ADDR to its name and MASTER_PORT to a free port"
            + (", or install mpi4py" if launcher == "mpirun" else "")
            + f"; if this process is alone, give it {ALONE}"
        )
    if port is None:
        raise InvalidArgument(
            f"[group] MASTER_PORT is not set, and MASTER_ADDR={address} is: set MASTER_PORT to a "
            "free port of that host, 1 to 65535, the same on every rank"
        )
    return address, port


def _slurm_step(env: Mapping[str, str]) -> tuple[int, int] | None:
    """(rank, size) of the tasks of a step; a batch script is none although it has SLURM_PROCID."""
    if "SLURM_STEP_ID" not in env or "SLURM_PROCID" not in env:
        return None
    size_name = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in env else "SLURM_NTASKS"
    return _rank_and_size(env, "SLURM_PROCID", size_name)


def _rank_and_size(
    env: Mapping[str, str], rank_name: str, size_name: str
) -> tuple[int, int] | None:
    rank, size = _number(env, rank_name, 0), _number(env, size_name, 1)
    if rank is None and size is None:
        return None
    if rank is None or size is None:
        there, absent = (size_name, rank_name) if rank is None else (rank_name, size_name)
        raise InvalidArgument(
            f"[group] {there}={env[there]} is set and {absent} is not: set both, {rank_name} "
            f"from 0 to {size_name} - 1, or neither"
        )
    if rank >= size:
        raise InvalidArgument(
            f"[group] {rank_name}={rank}: 0 to {size - 1} is allowed with {size_name}={size}; "
            "number the processes from 0"
        )
    return rank, size


def _number(env: Mapping[str, str], name: str, least: int, most: int = 1 << 31) -> int | None:
    text = env.get(name, "")
    if not text:
        return None
    if not re.fullmatch(r"\d{1,10}", text) or not least <= int(text) <= most:
        allowed = f"{least} to {most}" if most < 1 << 31 else f"{least} or more"
        raise InvalidArgument(
            f"[group] {name}={text!r}: an integer, {allowed}, is allowed; correct it, or unset it"
        )
    return int(text)


def first_host(nodes: str) -> str:
    """The first host of a Slurm node list: ``rack[2-3]n[07,09-12],login1`` -> ``rack2n07``."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", first.group() if first else "")


def slurm_port(env: Mapping[str, str]) -> int:
    """A port that the tasks of a step agree on, and other steps on the same host hardly use."""
    job = _number(env, "SLURM_JOB_ID", 0) or 0
    step = _number(env, "SLURM_STEP_ID", 0, 1 << 32) or 0
    return FIRST_PORT + (job * 101 + step) % NUM_PORTS
