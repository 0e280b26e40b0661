"""Where the launcher's processes meet: the environment, MPI, Horovod."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from gear import _core
from gear.distributed.channels.base import Alone, Channel
from gear.distributed.channels.carried import TransportChannel
from gear.distributed.channels.connect import connect
from gear.distributed.channels.framework import FrameworkRanks
from gear.distributed.channels.horovod import HorovodRanks
from gear.distributed.channels.mpi import MpiRanks, initialise_mpi, is_of_the_core
from gear.distributed.meeting.from_torch import meet_at_store, meet_by_torch, waiting_for
from gear.distributed.meeting.launch import (
    ALONE,
    OWN_MPI,
    Launch,
    find_launch,
    installed,
    launcher_name,
)
from gear.distributed.meeting.meeting import Meeting, given_to_all
from gear.distributed.same import check_same
from gear.distributed.timeout import Limit
from gear.distributed.waiting import Waiting
from gear.errors import InvalidArgument

log = logging.getLogger("gear")


def meet_by_environment(timeout_s: float, transport: str) -> Meeting:
    """All processes that the launcher started; see `Group.from_env`."""
    running = _initialised()
    if running:
        log.debug("[group] %s is initialised: its ranks are the group", running)
    if running == "torch.distributed":
        return meet_by_torch(None, timeout_s, transport)
    if running == "Horovod":
        return meet_by_horovod(None, timeout_s, transport)
    if running == "mpi4py":
        return meet_by_mpi(None, timeout_s, transport)
    launch = find_launch(os.environ, installed)
    own: _core.Transport | None = None
    failure = _core.Failure()
    if launch.via == "mpi":
        with waiting_for(launch, "the other ranks, in MPI_Init", None):
            if installed("mpi4py"):
                initialise_mpi(timeout_s)
                seen = _mpi4py_sees()
            else:
                own = _core.mpi_transport(0, timeout_s, failure=failure)
                seen = own.size
        launch = _unless_mpi_is_another(launch, seen)
    log.debug(
        "[group] %s (%s): rank %d of %s, via %s",
        launch.launcher,
        launch.found or "no launcher's variables",
        launch.rank,
        launch.size or "?",
        launch.via,
    )
    if launch.via == "store":
        return meet_at_store(launch, timeout_s, transport)
    if launch.via == "mpi" and own is not None:
        return Meeting(TransportChannel(own, (), failure), launcher_name(own.size))
    if launch.via == "mpi":
        return meet_by_mpi(None, timeout_s, transport)
    if launch.via == "horovod":
        import horovod.torch as hvd

        with waiting_for(launch, "the other ranks, in Horovod's init", None):
            hvd.init()  # ends by itself at exit
        return meet_by_horovod(None, timeout_s, transport)
    return Meeting(Alone(timeout_s), launch.launcher)


def meet_by_mpi(communicator: Any, timeout_s: float, transport: str) -> Meeting:
    """The ranks of an mpi4py communicator; None: all."""
    from mpi4py import MPI

    if communicator is None:  # a null communicator is false, too
        communicator = MPI.COMM_WORLD
    if communicator == MPI.COMM_NULL:
        raise InvalidArgument(
            "[group] Group.from_mpi was given MPI.COMM_NULL: this rank is in no communicator, as "
            "after a Split without a colour; call it only on ranks that have one"
        )
    rank, size = communicator.Get_rank(), communicator.Get_size()
    with Waiting.of_connected(rank, size, timeout_s):
        ranks = MpiRanks(communicator, timeout_s)
        if not is_of_the_core():
            return Meeting(_connected(ranks, transport), launcher_name(size))
        handle, failure = ranks.fortran_handle(), ranks.failure
        own = _core.mpi_transport(handle, timeout_s, failure=failure)
        return Meeting(TransportChannel(own, (), failure, handle=handle), launcher_name(size))


def meet_by_horovod(process_set: Any, timeout_s: float, transport: str) -> Meeting:
    """The ranks of a Horovod process set; None: all."""
    ranks = HorovodRanks(process_set, timeout_s)
    with Waiting.of_connected(ranks.rank, ranks.size, timeout_s):
        return Meeting(_connected(ranks, transport), launcher_name(ranks.size))


def _connected(ranks: FrameworkRanks, transport: str) -> Channel:
    if ranks.size == 1:
        return Alone(ranks.timeout_s)
    meeting = Limit.of(ranks.timeout_s)
    given = ranks.meet(given_to_all(transport, ranks.timeout_s), meeting)
    check_same("[group] Group", given)
    return connect(ranks, transport, "", meeting)


def _mpi4py_sees() -> int:
    from mpi4py import MPI

    return int(MPI.COMM_WORLD.Get_size())


def _unless_mpi_is_another(launch: Launch, seen: int) -> Launch:
    """`launch`; where this process's MPI does not know the launcher, and so sees one rank, without
    it."""
    if launch.size in (0, seen):
        return launch
    who = "mpi4py" if installed("mpi4py") else "GEAR"
    problem = (
        f"[group] {launch.found} say {launch.size} ranks and {who} sees {seen}: {who} uses "
        "another MPI than the launcher"
    )
    try:
        other = find_launch(
            os.environ, lambda name: name not in ("mpi4py", OWN_MPI) and installed(name)
        )
    except InvalidArgument as error:
        raise InvalidArgument(
            f"{problem}; install an mpi4py for that MPI, or set MASTER_ADDR and MASTER_PORT; if "
            f"this process is alone, give it {ALONE}"
        ) from error
    log.info("%s; the ranks meet at %s:%d instead", problem, other.address, other.port)
    return other


def _initialised() -> str | None:
    """What connects ranks in this process already; nothing is imported to find out."""
    torch_distributed = sys.modules.get("torch.distributed")
    if (
        torch_distributed is not None
        and torch_distributed.is_available()
        and torch_distributed.is_initialized()
    ):
        return "torch.distributed"
    horovod = sys.modules.get("horovod.torch")
    if horovod is not None and horovod.is_initialized():
        return "Horovod"
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and mpi.COMM_WORLD.Get_size() > 1:
        return "mpi4py"
    return None
