"""Which real rank of a job a process is, by what started it, and its environment as such."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from gear.distributed.meeting.launch import (
    FIRST_PORT,
    NUM_PORTS,
    SINGLE,
    Launch,
    find_launch,
    is_in_shell,
)
from gear.emu.job import Job
from gear.errors import InvalidArgument

LOCAL = {
    "LOCAL_RANK": (
        *("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
        *("MV2_COMM_WORLD_LOCAL_RANK", "PALS_LOCAL_RANKID"),
    ),
    "LOCAL_WORLD_SIZE": (
        *("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
        "MV2_COMM_WORLD_LOCAL_SIZE",
    ),
}
# What programs read for their rank and the number of ranks beside RANK and WORLD_SIZE.
RANK_NAMES = ("SLURM_PROCID",)
SIZE_NAMES = ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS")
JOBS = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID")  # which mpirun it is


def rank_in(job: Job, env: Mapping[str, str]) -> int:
    """Of a process with that environment in the world of `job`.

    Launchers (torchrun, srun, mpirun, DeepSpeed's) start the real ranks and count them; by hand,
    with the WORLD_SIZE of the job or none, RANK is a rank of the job.

    Raises:
        InvalidArgument: for a rank that is no real one, as many processes as are not real, and
            what a launcher below `gear emu run` has started.
    """
    if placed := env.get("GEAR_EMU_RANK"):
        said = (env.get("RANK", placed), env.get("WORLD_SIZE", str(job.ranks)))
        if said != (placed, str(job.ranks)):
            raise InvalidArgument(
                f"[emu] RANK={said[0]} of {said[1]} below rank {placed} of {job.ranks}: a launcher"
                " has started this process inside of gear emu run: start them the other way round,"
                " as torchrun --no-python ... gear emu run ... -- python ..."
            )
        return _real(job, placed)
    if _is_by_hand(job, env):
        return _real(job, env["RANK"])
    launch = started(env)
    if launch.launcher != "single" and launch.size == len(job.real):
        return job.real[launch.rank]
    if launch.size == 1 and len(job.real) == 1:
        return job.real[0]
    found = f"by {launch.found} one of {launch.size}" if launch.found else "alone"
    raise InvalidArgument(
        f"[emu] this process is {found}, and {len(job.real)} ranks of the job are real"
        f" ({job.real_in_words}): start as many processes, or give each its RANK"
    )


def place(job: Job, env: Mapping[str, str]) -> dict[str, str]:
    """What stands in `env` in another way where that process is a rank of the job; empty for one
    that is in its place, and one that nothing has started as such, as a launcher itself.

    Raises:
        InvalidArgument: as `rank_in`.
    """
    if env.get("GEAR_EMU_RANK"):
        return {}
    by_hand = _is_by_hand(job, env)
    launch = SINGLE if by_hand else started(env)
    if not by_hand and (launch.launcher == "single" or launch.size == 1 < len(job.real)):
        return {}
    own = numbered(job, rank_in(job, env), env)
    for name, others in LOCAL.items():
        local = next((env[other] for other in others if env.get(other)), None)
        if local is not None:
            own[name] = local
    if launch.address:
        own |= {"MASTER_ADDR": launch.address, "MASTER_PORT": str(launch.port)}
    return own


def numbered(job: Job, rank: int, env: Mapping[str, str]) -> dict[str, str]:
    """That rank of the job by all names that programs may go by and that `env` has."""
    return {
        "GEAR_EMU_RANK": str(rank),  # its environment is that of a rank from now on
        "RANK": str(rank),
        "WORLD_SIZE": str(job.ranks),
        **{name: str(rank) for name in RANK_NAMES if name in env},
        **{name: str(job.ranks) for name in SIZE_NAMES if name in env},
    }


def counted(job: Job, env: Mapping[str, str]) -> dict[str, str]:
    """The place of a process with that environment among the real ranks, as a launcher says it.

    Raises:
        InvalidArgument: as `rank_in`.
    """
    index = job.real.index(rank_in(job, env))
    own = {"RANK": str(index), "WORLD_SIZE": str(len(job.real))}
    return {"MASTER_ADDR": "127.0.0.1", **own} if not env.get("MASTER_ADDR") else own


def started(env: Mapping[str, str]) -> Launch:
    """By which launcher, as one of how many; MPI, which emulated ranks are not on, says nothing."""
    said = dict(env)
    if not (said.get("RANK") and said.get("WORLD_SIZE")):  # half of it is somebody's for himself
        said.pop("RANK", None)
        said.pop("WORLD_SIZE", None)
    if is_in_shell(said) and not said.get("RANK"):
        return SINGLE
    return find_launch(said | _on_this_host(said), lambda _: False)


def _is_by_hand(job: Job, env: Mapping[str, str]) -> bool:
    """Whether RANK is a rank of the job; torchrun's is not, even where it starts as many."""
    of_job = env.get("WORLD_SIZE", "") in ("", str(job.ranks))
    return bool(env.get("RANK")) and of_job and "TORCHELASTIC_RUN_ID" not in env


def _on_this_host(env: Mapping[str, str]) -> dict[str, str]:
    """Where ranks of an mpirun meet that are all here."""
    here, all_ = env.get("OMPI_COMM_WORLD_LOCAL_SIZE"), env.get("OMPI_COMM_WORLD_SIZE")
    if env.get("MASTER_ADDR") or here is None or here != all_:
        return {}
    run = next((env[name] for name in JOBS if env.get(name)), "")
    port = FIRST_PORT + zlib.crc32(run.encode()) % NUM_PORTS
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": env.get("MASTER_PORT") or str(port)}


def _real(job: Job, rank: str) -> int:
    if not rank.isdigit() or int(rank) not in job.real:
        raise InvalidArgument(
            f"[emu] RANK={rank}: a real rank is allowed: {job.real_in_words}; give it, or make"
            " that one real"
        )
    return int(rank)
