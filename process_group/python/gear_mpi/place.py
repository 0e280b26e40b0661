"""Where a process is among those that MPI has started, as torch.distributed wants to know it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from gear_mpi import VARIABLES
from gear_mpi.errors import TransportError
from gear_mpi.library import LAUNCHERS, load

_stores: list[TCPStore] = []  # of this process's world: there is one
_meetings: list[int] = []  # how often the ranks have met


def launched_by_mpi() -> bool:
    """Whether an MPI launcher has started this process."""
    return any(name in os.environ for name in LAUNCHERS)


def meet(timeout: timedelta) -> tuple[Store, int, int]:
    """A store of all processes that MPI has started, this one's rank, and their number.

    Rank 0 serves it at a port that the system gives it, and MPI tells the others. Collective over
    all of them; every meeting has keys of its own.

    Raises:
        TransportError: rank 0 did not come within `timeout`, or could not serve the store; the
            others then say why.
    """
    rank, size = load().world()
    if not _stores:
        host, port = _from_rank_0("init_process_group", lambda: _serve(timeout), timeout)
        if rank != 0:
            _stores.append(TCPStore(host, port, None, False, timeout))
    _meetings.append(rank)
    return PrefixStore(f"meeting {len(_meetings)}", _stores[0]), rank, size


def _serve(timeout: timedelta) -> tuple[str, int]:
    host = _own_host()
    store = TCPStore("localhost", 0, None, True, timeout, False)
    _stores.append(store)
    return host, store.port


def _from_rank_0(
    call: str, address: Callable[[], tuple[str, int]], timeout: timedelta
) -> tuple[str, int]:
    """What `address` returns on rank 0, on all ranks; where it raises there, all of them do.

    call: what the user called, the same on all ranks.
    """
    module = load()
    said = ""
    failed: BaseException | None = None
    if module.world()[0] == 0:
        told: dict[str, Any] = {"call": call}
        try:
            told["address"] = address()
        except BaseException as error:  # noqa: BLE001, Ctrl-C too: the others wait for this
            failed = error
            words = "".join(c if " " <= c <= "~" else " " for c in str(error)[:400])
            told["error"] = f"{type(error).__name__}: {words}"
        said = json.dumps(told)
    said = module.from_rank_0(said, timeout.total_seconds())
    if failed is not None:
        raise failed
    told = json.loads(said)
    if told["call"] != call:
        raise TransportError(
            f"[mpi] rank 0 is in {told['call']} while this rank is in {call}: all ranks must make "
            "the same calls in the same order"
        )
    if "error" in told:
        raise TransportError(
            f"[mpi] rank 0 failed in {call} with {told['error']}: look at its output"
        )
    host, port = told["address"]
    return host, port


def _own_host() -> str:
    """The name by which other hosts reach this one; where it has none, there are no others."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "127.0.0.1"
    return name


def set_environment(timeout: timedelta = dist.default_pg_timeout) -> None:
    """Sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, for programs that read them.

    Variables that are set stay as they are. Collective over all processes that MPI has started,
    before `init_process_group`: whoever is rank 0 serves nothing yet, so the port is one that was
    free a moment ago.

    Raises:
        TransportError: not all of them came within `timeout`, or rank 0 found no port.
    """
    module = load()
    rank, size = module.world()
    host, port = _from_rank_0("set_environment", _free_address, timeout)
    found = {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(module.local_rank(timeout.total_seconds())),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
    }
    for name, value in found.items():
        os.environ.setdefault(name, value)


def _free_address() -> tuple[str, int]:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return _own_host(), probe.getsockname()[1]


def by_mpi(url: str, timeout: timedelta = dist.default_pg_timeout, **_: Any) -> Iterator[Any]:
    """For ``init_method="mpi://"``, and where MPI has started the processes."""
    yield meet(timeout)


Meet = Callable[..., Iterator[Any]]


def by_mpi_or(by_environment: Meet) -> Meet:
    """How processes meet whose environment lacks some of what torch's ``env://`` goes by: those
    that MPI has started by MPI, if it has none of it. Of the others, the error says what to do."""
    told = any(name in os.environ for name in VARIABLES)
    return by_mpi if not told and launched_by_mpi() else _with_advice(by_environment)


def _with_advice(by_environment: Meet) -> Meet:
    def meet_or_advise(url: str, **words: Any) -> Iterator[Any]:
        try:
            yield from by_environment(url, **words)
        except ValueError as error:
            given = [name for name in VARIABLES if name in os.environ]
            if given:
                raise ValueError(
                    f"{error}: this process has {', '.join(given)} alone, of "
                    f"{', '.join(VARIABLES)}; start ranks of other backends with torchrun, which "
                    "sets all of them; for gear_mpi, unset what is set, so that mpirun or srun "
                    "tells the ranks, or call gear_mpi.set_environment(), which sets the others; "
                    "for one process alone give it init_method='mpi://'"
                ) from error
            raise ValueError(
                f"{error}: no launcher has started this process; start ranks of gear_mpi with "
                "mpirun or srun --mpi=pmix or pmi2, those of other backends with torchrun; for one "
                "process alone give init_method='mpi://' to gear_mpi"
            ) from error

    return meet_or_advise
