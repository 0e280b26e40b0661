"""Where a process is among those that MPI has started, as torch.distributed wants to know it."""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from gear.distributed.meeting.launch import MPI_VARIABLES
from gear.mpi.library import load

SCHEME = "mpi"
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_stores: list[TCPStore] = []  # of this process's world: there is one
_meetings: list[int] = []  # how often the ranks have met


def launched_by_mpi() -> bool:
    """Whether an MPI launcher has started this process."""
    names = [rank for rank, _ in MPI_VARIABLES]
    return any(name in os.environ for name in [*names, "PMIX_RANK"])


def meet(timeout: timedelta) -> tuple[Store, int, int]:
    """A store of all processes that MPI has started, this one's rank, and their number.

    Rank 0 serves it at a port that the system gives it, and MPI tells the others. Collective over
    all of them; every meeting has keys of its own.
    """
    rank, size = load().world()
    if not _stores:
        if rank == 0:
            _stores.append(TCPStore("localhost", 0, None, True, timeout, False))
            load().from_rank_0(f"{_own_host()}:{_stores[0].port}")
        else:
            host, port = load().from_rank_0("").rsplit(":", 1)
            _stores.append(TCPStore(host, int(port), None, False, timeout))
    _meetings.append(rank)
    return PrefixStore(f"meeting {len(_meetings)}", _stores[0]), rank, size


def _own_host() -> str:
    """The name by which other hosts reach this one; where it has none, there are no others."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "127.0.0.1"
    return name


def set_environment() -> None:
    """Sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, for programs that read them.

    Variables that are set stay as they are. Collective over all processes that MPI has started,
    before `init_process_group`: whoever is rank 0 serves nothing yet, so the port is one that was
    free a moment ago.
    """
    module = load()
    rank, size = module.world()
    address = ""
    if rank == 0:
        with socket.socket() as probe:
            probe.bind(("", 0))
            address = f"{_own_host()}:{probe.getsockname()[1]}"
    host, port = module.from_rank_0(address).rsplit(":", 1)
    found = {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(module.local_rank()),
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
    }
    for name, value in found.items():
        os.environ.setdefault(name, value)


def _by_mpi(url: str, timeout: timedelta = dist.default_pg_timeout, **_: Any) -> Iterator[Any]:
    """For ``init_method="mpi://"``."""
    yield meet(timeout)


Meet = Callable[..., Iterator[Any]]


def _by_environment(original: Meet) -> Meet:
    """torch's ``env://``, and for processes that MPI has started without its variables, MPI. Of
    those that nobody has started, the error says what could."""

    def meet_either(url: str, timeout: timedelta = dist.default_pg_timeout, **more: Any) -> Any:
        is_told = any(name in os.environ for name in VARIABLES) or "rank=" in url
        if launched_by_mpi() and not is_told:
            yield meet(timeout)
            return
        try:
            yield from original(url, timeout=timeout, **more)
        except ValueError as error:
            if is_told:
                raise
            raise ValueError(
                f"{error}: no launcher has started this process; start ranks of gear_mpi with "
                "mpirun or srun --mpi=pmix, those of other backends with torchrun; for one process "
                "alone give init_method='mpi://' to gear_mpi"
            ) from error

    return meet_either


def register_meeting() -> None:
    """Makes ``mpi://``, and ``env://`` under mpirun, ways by which torch's ranks meet."""
    rendezvous = importlib.import_module("torch.distributed.rendezvous")  # a function hides it
    handlers = rendezvous._rendezvous_handlers
    if SCHEME not in handlers:
        rendezvous.register_rendezvous_handler(SCHEME, _by_mpi)
        handlers["env"] = _by_environment(handlers["env"])
