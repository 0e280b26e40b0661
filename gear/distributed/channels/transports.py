"""Which transport carries a group's bytes: the one place that chooses."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from gear import _core
from gear.distributed.channels.base import Channel
from gear.distributed.channels.loopback import ThreadChannel
from gear.distributed.channels.mpi import MpiChannel
from gear.distributed.places import Places
from gear.distributed.together import together
from gear.errors import GearError, InvalidArgument

TRANSPORTS = ("auto", "shared_memory", "mpi", "group", "verbs", "fabric")
# Read rows out of their owners' memory, beside a transport for messages. What a rank needs.
ONE_SIDED = {"verbs": "an RDMA port", "fabric": "libfabric with a provider"}
HEADERS = {"verbs": "infiniband/verbs.h of rdma-core", "fabric": "rdma/fabric.h of libfabric"}
# Where the kernel lists network cards that read remote memory: InfiniBand, RoCE, EFA, Omni-Path;
# Slingshot.
CARDS = (Path("/sys/class/infiniband"), Path("/sys/class/cxi"))
WORLD = 0  # the Fortran handle that stands for MPI_COMM_WORLD


def check_transport(transport: str) -> None:
    """Refuses what is no transport's name."""
    if transport not in TRANSPORTS:
        raise InvalidArgument(
            f"[group] transport {transport!r}: {', '.join(map(repr, TRANSPORTS))} are allowed"
        )


@dataclasses.dataclass(frozen=True)
class Choice:
    """What carries the bytes of a group, the same on every rank.

    Attributes:
        name: as `Group.transport_name` says it.
        messages: the kind that carries all but rows that are read one-sided.
        why: in words.
        required: a kind in ONE_SIDED was asked for; else rows may go by messages, if memory cannot
            be registered.
    """

    name: str
    messages: str
    why: str
    required: bool = True


def choose_transport(channel: Channel, places: Places, launcher: str, wanted: str) -> Choice:
    """Collective.

    Raises:
        InvalidArgument: `wanted` cannot be had for these ranks.
    """
    if isinstance(channel, ThreadChannel):
        return Choice("loopback", "loopback", "the ranks are threads of one process")
    if places.size == 1:
        return Choice("loopback", "loopback", "there is one rank")
    with_mpi = all(channel.exchange(_has_mpi(channel, launcher)))
    if wanted == "mpi" and not with_mpi:
        raise InvalidArgument(
            "[transport] transport 'mpi' needs GEAR built with MPI and ranks that mpirun started: "
            f"this is {_build()}, and its ranks were started by {launcher} and connected by "
            f"{channel.kind}; use 'auto'"
        )
    hosts = len({member.host for member in places.members})
    if wanted == "shared_memory" and hosts > 1:
        raise InvalidArgument(
            "[transport] transport 'shared_memory' needs all ranks on one host: these "
            f"{places.size} ranks are on {hosts} hosts; use 'auto'"
        )
    if wanted not in ("auto", *ONE_SIDED):
        return Choice(wanted, wanted, "it was asked for")
    messages, why = _messages(channel, places, hosts, with_mpi)
    if wanted in ONE_SIDED:
        port = _ports(channel, wanted)[0]
        return Choice(wanted, messages, f"it was asked for; rank 0 has {port}")
    if messages == "shared_memory":
        return Choice(messages, messages, why)
    missing = []
    for kind in ONE_SIDED:
        offers = channel.exchange(one_sided_offer(kind))
        lacking = [f"rank {rank} has {lack}" for rank, (_, lack) in enumerate(offers) if lack]
        if not lacking:
            told = f"every rank has {ONE_SIDED[kind]} (rank 0: {offers[0][0]})"
            return Choice(kind, messages, f"{told}; messages go by {messages}", required=False)
        missing.append(f"{kind}: {lacking[0]}")
    return Choice(messages, messages, f"{why}; rows one-sided: {'; '.join(missing)}")


def one_sided_offer(kind: str) -> tuple[str, str]:
    """(what ``"auto"`` would read rows by here, why nothing) of a kind in ONE_SIDED: one is "".

    It opens no library where no network card is, so that ranks without one lose no time.
    """
    if not _core.build_info()[kind]:
        return "", f"a build without {HEADERS[kind]}"
    if not any(any(cards.glob("*")) for cards in CARDS):
        return "", "no RDMA device"
    try:
        port = one_sided_port(kind)
    except GearError as error:
        return "", f"none to use ({str(error).removeprefix('[transport] ')})"
    if kind == "fabric" and port.startswith("tcp"):
        return "", f"{port} only, which is no faster than messages"
    return port, ""


def one_sided_port(kind: str) -> str:
    """What a kind in ONE_SIDED would use here, in words."""
    return _core.verbs_port() if kind == "verbs" else _core.fabric_port()


def _messages(channel: Channel, places: Places, hosts: int, with_mpi: bool) -> tuple[str, str]:
    """(kind, why): what ``"auto"`` takes for messages."""
    if places.num_nodes == 1 and hosts == 1:
        return "shared_memory", "all ranks are on one node"
    if with_mpi:
        return "mpi", f"the ranks are on {places.num_nodes} nodes and MPI started them"
    return "group", (
        f"the ranks are on {places.num_nodes} nodes, connected by {channel.kind}, and {_build()}"
    )


def open_transport(channel: Channel, choice: Choice) -> _core.Transport:
    """A new transport. Collective."""
    messages = _open_messages(channel, choice.messages)
    if choice.name not in ONE_SIDED:
        return messages
    make = _core.verbs_transport if choice.name == "verbs" else _core.fabric_transport
    return make(messages, channel.failure, choice.required)


def _open_messages(channel: Channel, kind: str) -> _core.Transport:
    """A new transport of a kind that carries messages. Collective."""
    rank, size, timeout_s = channel.rank, channel.size, channel.timeout_s
    transport: _core.Transport
    if kind == "loopback":

        def make() -> list[Any]:
            return list(_core.loopback_transports(size, timeout_s, channel.failures))

        if isinstance(channel, ThreadChannel):
            transport = channel.part("transport", make)
        else:
            transport = make()[0]
    elif kind == "shared_memory":
        name = channel.exchange(_core.made_up_name())[0]

        def make_room() -> _core.SharedRoom | None:
            return _core.SharedRoom(name, size) if rank == 0 else None

        # The others look for it when they have heard that it is there.
        made = together(channel, make_room, "Group.transport")
        transport = _core.shared_memory_transport(
            name, rank, size, timeout_s, channel.failure, made
        )
    elif kind == "mpi":
        handle = channel.fortran_handle() if isinstance(channel, MpiChannel) else WORLD
        transport = _core.mpi_transport(handle, timeout_s, failure=channel.failure)
    else:
        transport = _core.group_transport(channel.duplicate(), rank, size, timeout_s)
    return transport


def _has_mpi(channel: Channel, launcher: str) -> bool:
    built = _core.build_info()["mpi"]
    if isinstance(channel, MpiChannel):
        # Handles mean nothing to an MPI of another maker.
        return bool(built) and built.split()[0] == channel.library().split()[0]
    return bool(built) and launcher == "mpirun"


def _ports(channel: Channel, kind: str) -> list[str]:
    """What every rank has for a transport in ONE_SIDED, in words. Collective."""
    port, why = "", ""
    try:
        port = one_sided_port(kind)
    except GearError as error:
        why = str(error).removeprefix("[transport] ")
    told = channel.exchange([port, why])
    failed = [f"rank {rank}: {why}" for rank, (_, why) in enumerate(told) if why]
    if failed:
        raise InvalidArgument(
            f"[transport] transport {kind!r} needs {ONE_SIDED[kind]} on every rank: "
            f"{'; '.join(failed)}"
        )
    return [port for port, _ in told]


def _build() -> str:
    mpi = _core.build_info()["mpi"]
    return f"a build with {mpi}" if mpi else "a build without MPI"
