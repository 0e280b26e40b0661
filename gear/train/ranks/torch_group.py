"""A process group of torch.distributed, whatever launched the ranks."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import gear
import gear.emu
from gear.emu.install import register
from gear.emu.meeting import BACKEND


def choose_backend(gpus: list[str], wanted: str = "auto", job: gear.emu.Job | None = None) -> str:
    """What averages gradients; `wanted` is dist.backend, and "auto" NCCL if every rank has a GPU of
    its own, which it insists on, else gloo.

    gpus: of every rank, as `gpu_of` calls it.
    job: the emulated one that these ranks are of, whose backend it is then.
    Raises InvalidArgument where `wanted` cannot be had.
    """
    own = all(gpus) and len(set(gpus)) == len(gpus)
    if job is not None:
        if any(gpus):
            raise gear.InvalidArgument(
                "[train] an emulated job moves tensors of the host's memory, and device=cuda has "
                "the gradients on GPUs: give device=cpu"
            )
        register()
        return BACKEND
    if wanted == "gear_mpi":
        if any(gpus):
            raise gear.InvalidArgument(
                "[train] dist.backend=gear_mpi moves tensors of the host's memory, and device=cuda "
                "has the gradients on GPUs: give device=cpu, or dist.backend=auto"
            )
        _extension()
        return wanted
    if wanted == "nccl" and not (own and dist.is_nccl_available()):
        lacks = "every rank needs a GPU of its own" if not own else "this torch has no NCCL"
        raise gear.InvalidArgument(
            f"[train] dist.backend=nccl: {lacks}: give device=cuda with a GPU for each rank and a "
            "torch for CUDA, or dist.backend=auto"
        )
    if wanted == "gloo" or not (own and dist.is_nccl_available()):
        return "gloo"
    if not hasattr(dist.ProcessGroup, "abort"):
        raise gear.InvalidArgument(
            f"[train] torch {torch.__version__} cannot end a collective of NCCL after a rank has "
            "died: dist=ddp with a GPU for each rank needs torch 2.6 or later"
        )
    return "nccl"


def _extension() -> Any:
    """gear_mpi._c10d; torch knows gear_mpi from here on."""
    import gear_mpi
    from gear_mpi.library import load

    gear_mpi.register()
    try:
        return load()
    except gear_mpi.InvalidArgument as error:
        raise gear.InvalidArgument(str(error)) from error


def timeout_of(group: gear.Group, backend: str) -> timedelta:
    """For each process group of torch's that these ranks make."""
    # Of NCCL it is Watch that counts, and says more; gloo's own is what ends DDP's waits.
    return timedelta(seconds=group.timeout_s * (2 if backend == "nccl" else 1))


def join(
    group: gear.Group,
    backend: str,
    in_time: Callable[[Callable[[], Any]], Any],
    job: gear.emu.Job | None = None,
) -> dist.ProcessGroup:
    """in_time: makes a call of torch's, which waits for the other ranks.

    job: the emulated one whose real ranks the group has; the process group has all of its ranks.
    """
    # torch's own watch of NCCL would abort the process without a word: Watch is in its place.
    if backend == "nccl":
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    if backend == "gear_mpi":
        _extension().world()  # MPI starts in this thread, which lives as long as the process
    timeout = timeout_of(group, backend)
    made: dist.ProcessGroup | None
    if dist.is_initialized():
        made = in_time(lambda: dist.new_group(backend=backend, timeout=timeout))
        assert made is not None
        return made
    host = "127.0.0.1" if group.num_nodes == 1 else socket.gethostname()
    store, port = None, 0
    if group.rank == 0:
        store = dist.TCPStore(  # type: ignore[attr-defined]
            host, 0, group.size, True, timeout, wait_for_workers=False
        )
        port = store.port
    host, port = group.exchange([host, port])[0]
    if store is None:
        store = in_time(
            lambda: dist.TCPStore(  # type: ignore[attr-defined]
                host, port, group.size, False, timeout
            )
        )
    rank, size = (job.real[group.rank], job.ranks) if job else (group.rank, group.size)
    in_time(
        lambda: dist.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=timeout
        )
    )
    made = dist.group.WORLD
    assert made is not None
    return made
