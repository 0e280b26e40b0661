"""How torch.distributed comes to know an emulated job."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from gear.emu.group import create
from gear.emu.job import Job
from gear.emu.meeting import BACKEND, meet_by_job
from gear.emu.present import settle


def install(job: Job) -> Job:
    """Makes this process a rank of the job, once; `job` itself.

    torch.distributed knows the backend ``gear_emu`` from then on, and its ``env://`` has the real
    ranks meet. RANK says which of them this is; of a job with one, it need not be set.

    Raises:
        InvalidArgument: for a RANK that is no real one, and a process that has another job.
    """
    settle(job)
    register()
    return job


def is_hooked() -> bool:
    """Whether this Python began with the hook, which sees to torch.distributed."""
    first = getattr(sys.modules.get("sitecustomize"), "__file__", None)
    return first is not None and Path(first).parent == Path(__file__).with_name("hook")


def register() -> None:
    """Makes the backend, and how its ranks meet, known to torch.distributed; once a process."""
    import torch.distributed as dist

    if not hasattr(dist, "Backend") or hasattr(dist.Backend, BACKEND.upper()):
        return  # the hook has told it, or will: it is being imported
    rendezvous = importlib.import_module("torch.distributed.rendezvous")  # a function hides it
    dist.Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu", "cuda"])
    meet_by_job(rendezvous._rendezvous_handlers)
