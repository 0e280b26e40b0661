"""How the real ranks of a job meet, where torch.distributed has all N do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from gear.emu.job import Job
from gear.emu.launched import place
from gear.emu.present import own_rank, present
from gear.errors import InvalidArgument

BACKEND = "gear_emu"


Meet = Callable[..., Iterator[Any]]
SCHEMES = ("env", "tcp", "file")


def meet_by_job(handlers: dict[str, Meet]) -> None:
    """Has the real ranks meet, in a process of a job, where torch's ways to meet (``env://`` and
    its like) wait for all N."""
    for scheme in SCHEMES:
        if scheme in handlers:
            handlers[scheme] = _or_by_job(handlers[scheme])


def _or_by_job(by_torch: Meet) -> Meet:

    def meet(url: str, timeout: timedelta = timedelta(minutes=30), **words: Any) -> Iterator[Any]:
        job = present()
        if job is None:
            yield from by_torch(url, timeout=timeout, **words)
            return
        yield _store(job, timeout), own_rank(job), job.ranks
        raise RuntimeError("[emu] ranks of an emulated job meet once")

    return meet


def _store(job: Job, timeout: timedelta) -> Any:
    """At MASTER_ADDR; torchrun's agent has one there already."""
    from torch._C._distributed_c10d import HashStore, TCPStore

    if len(job.real) == 1:
        return HashStore()
    env = dict(os.environ) | place(job, os.environ)
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not env.get(name)]
    if missing:
        raise InvalidArgument(
            f"[emu] {', '.join(missing)} is not set: the real ranks of a job meet there"
        )
    of_torchrun = env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return TCPStore(
        env["MASTER_ADDR"],
        int(env["MASTER_PORT"]),
        world_size=len(job.real),
        is_master=own_rank(job) == job.real[0] and not of_torchrun,
        timeout=timeout,
        multi_tenant=True,
    )
