"""Groups of what the launcher started: Group.from_env, from_mpi, from_horovod."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from typing import Any

from gear.distributed.channel import Alone
from gear.distributed.group import Group, check_transport, make_group, resolve_timeout
from gear.distributed.horovod_channel import HorovodChannel
from gear.distributed.launch import SINGLE, Launch, find_launch
from gear.distributed.member import Member
from gear.distributed.mpi_channel import MpiChannel, initialise_mpi
from gear.errors import InvalidArgument

log = logging.getLogger("gear")


def group_from_environment(timeout_s: float | None, transport: str) -> Group:
    wait_s = resolve_timeout(timeout_s)
    check_transport(transport)
    running = _initialised()
    if running:
        log.debug("[group] %s is initialised: its ranks are the group", running)
    if running == "torch.distributed":
        return Group.from_torch(timeout_s=wait_s, transport=transport)
    if running == "Horovod":
        return group_from_horovod(None, wait_s, transport)
    if running == "mpi4py":
        return group_from_mpi(None, wait_s, transport)
    launch = find_launch(os.environ, _installed)
    if launch.via == "mpi":
        initialise_mpi(wait_s)
        launch = _unless_mpi_is_another(launch)
    log.debug(
        "[group] %s (%s): rank %d of %s, via %s",
        launch.launcher,
        launch.found or "no launcher's variables",
        launch.rank,
        launch.size or "?",
        launch.via,
    )
    if launch.via == "torch":
        from gear.distributed.from_torch import group_at

        return group_at(launch, wait_s, transport)
    if launch.via == "mpi":
        return group_from_mpi(None, wait_s, transport)
    if launch.via == "horovod":
        import horovod.torch as hvd

        hvd.init()  # ends by itself at exit
        return group_from_horovod(None, wait_s, transport)
    return Group(Alone(wait_s), [Member.here(0)], launcher=launch.launcher, transport=transport)


def _unless_mpi_is_another(launch: Launch) -> Launch:
    """`launch`; where mpi4py's MPI does not know the launcher, and so sees one rank, without it."""
    from mpi4py import MPI

    seen = MPI.COMM_WORLD.Get_size()
    if launch.size in (0, seen):
        return launch
    problem = (
        f"[group] {launch.found} say {launch.size} ranks and mpi4py sees {seen}: it uses another "
        "MPI than the launcher"
    )
    try:
        other = find_launch(os.environ, lambda name: name != "mpi4py" and _installed(name))
    except InvalidArgument as error:
        raise InvalidArgument(
            f"{problem}; install an mpi4py for that MPI, or set MASTER_ADDR and MASTER_PORT"
        ) from error
    log.info("%s; the ranks meet at %s:%d instead", problem, other.address, other.port)
    return other


def group_from_mpi(communicator: Any, timeout_s: float | None, transport: str) -> Group:
    check_transport(transport)
    wait_s = resolve_timeout(timeout_s)
    from mpi4py import MPI

    channel = MpiChannel(communicator or MPI.COMM_WORLD, wait_s)
    return make_group(channel, launcher=launcher_name(channel.size), transport=transport)


def group_from_horovod(process_set: Any, timeout_s: float | None, transport: str) -> Group:
    check_transport(transport)
    channel = HorovodChannel(process_set, resolve_timeout(timeout_s))
    return make_group(channel, launcher=launcher_name(channel.size), transport=transport)


def launcher_name(size: int) -> str:
    """The launcher of ranks that something else has connected already."""
    try:
        launch = find_launch(os.environ, lambda _: True)
    except InvalidArgument:
        launch = SINGLE
    if launch.size == size or launch.size == 0:
        return launch.launcher
    return "single" if size == 1 else "environment"


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


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
