"""Which transport carries a group's bytes: the one place that chooses."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gear import _core
from gear.distributed.channels.base import Channel
from gear.distributed.channels.carried import TransportChannel
from gear.distributed.channels.first_exchange import (
    Tried,
    fastest,
    patience_s,
    told,
    try_out,
)
from gear.distributed.channels.mpi import is_of_the_core
from gear.distributed.meeting.launch import place_in_mpi
from gear.distributed.places import Places
from gear.distributed.together import together
from gear.errors import GearError, InvalidArgument, TransportError

TRANSPORTS = ("auto", "shared_memory", "mpi", "libfabric", "group", "verbs", "fabric")
# Read rows out of their owners' memory, beside a transport for messages. What a rank needs.
ONE_SIDED = {"verbs": "an RDMA port", "fabric": "libfabric with a provider"}
HEADERS = {"verbs": "infiniband/verbs.h of rdma-core", "fabric": "rdma/fabric.h of libfabric"}
# Where the kernel lists network cards that read remote memory: InfiniBand, RoCE, EFA, Omni-Path;
# Slingshot.
CARDS = (Path("/sys/class/infiniband"), Path("/sys/class/cxi"))
Around = Callable[[_core.Transport], _core.Transport]
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
        around: what each transport is wrapped in.
    """

    name: str
    messages: str
    why: str
    required: bool = True
    around: Around = lambda transport: transport


def choose_transport(channel: Channel, places: Places, launcher: str, wanted: str) -> Choice:
    """Collective. ``"auto"`` between nodes: by a first exchange of rows, where there is a choice.

    Raises:
        InvalidArgument: `wanted` cannot be had for these ranks.
        TransportError: a rank has ended meanwhile, or none of the kinds carries messages.
    """
    if channel.kind == "loopback":
        return Choice("loopback", "loopback", "the ranks are threads of one process")
    if places.size == 1:
        return Choice("loopback", "loopback", "there is one rank")
    with_mpi = all(channel.exchange(_has_mpi(channel, launcher)))
    if wanted == "mpi" and not with_mpi:
        starter = launcher
        if launcher == "mpirun" and place_in_mpi(os.environ) is None:
            starter = "a starter of MPI that does not tell each rank's place and size,"
        raise InvalidArgument(
            "[transport] transport 'mpi' needs GEAR built with MPI and all ranks that mpirun "
            "started, in their order, or those of an mpi4py communicator: this is "
            f"{_build()}, and its {places.size} ranks were started by {starter} and "
            f"connected by {channel.kind}; use 'auto'"
        )
    hosts = len({member.host for member in places.members})
    if wanted == "shared_memory" and hosts > 1:
        raise InvalidArgument(
            "[transport] transport 'shared_memory' needs all ranks on one host: these "
            f"{places.size} ranks are on {hosts} hosts; use 'auto'"
        )
    if wanted == "libfabric" and channel.kind != "libfabric":
        why = f"were started by {launcher} and are connected by {channel.kind}; use 'auto'"
        if channel.kind == "shared_memory":
            why = (
                "are of one node, and shared memory has connected them: ask for it where they "
                "meet, as by Group.from_env(transport='libfabric')"
            )
        raise InvalidArgument(
            f"[transport] transport 'libfabric' needs ranks that it has connected: these {why}"
        )
    if wanted not in ("auto", *ONE_SIDED):
        return Choice(wanted, wanted, "it was asked for")
    messages, why = _messages(channel, places, hosts, with_mpi)
    if wanted in ONE_SIDED:
        port = _ports(channel, wanted)[0]
        return Choice(wanted, messages, f"it was asked for; rank 0 has {port}")
    if messages == "shared_memory":
        return Choice(messages, messages, why)
    ports, missing = {}, []
    for kind in ONE_SIDED:
        offers = channel.exchange(one_sided_offer(kind))
        lacking = [f"rank {rank} has {lack}" for rank, (_, lack) in enumerate(offers) if lack]
        if lacking:
            missing.append(f"{kind}: {lacking[0]}")
        else:
            ports[kind] = f"rank 0 has {offers[0][0]}"
    lacks = f"; rows one-sided: {'; '.join(missing)}" if missing else ""
    connected = _own_kind(channel)
    carriers = ["mpi", connected] if with_mpi and connected != "mpi" else [connected]
    if places.num_nodes > 1 and len(ports) + len(carriers) > 1:
        return _by_first_exchange(channel, places, list(ports), carriers, lacks)
    for kind, port in ports.items():
        why = f"every rank has {ONE_SIDED[kind]} ({port})"
        return Choice(kind, messages, f"{why}; messages go by {messages}", required=False)
    return Choice(messages, messages, f"{why}{lacks}")


def _by_first_exchange(
    channel: Channel, places: Places, kinds: list[str], carriers: list[str], lacks: str
) -> Choice:
    """What rows go by, of `kinds` that read them and `carriers` of messages, each in its order."""

    def reader(kind: str) -> _core.Transport:
        return _one_sided(kind, _trial_messages(channel, messages), _core.Failure(), required=True)

    def attempt(kind: str, make: Callable[[], _core.Transport]) -> Tried:
        return try_out(channel, places.nodes, kind, make)

    by_message = [attempt(kind, partial(_trial_messages, channel, kind)) for kind in carriers]
    messages = fastest(by_message).kind
    if all(one.failed for one in by_message):
        raise TransportError(f"[transport] no messages: {told(by_message, places.num_nodes, '')}")
    one_sided = [attempt(kind, partial(reader, kind)) for kind in kinds]
    tried = [*one_sided, *by_message]
    # What ranks that only hold steps have is read one-sided or not at all.
    stores = any(member.role == "store" for member in places.members)
    answered = [one for one in one_sided if not one.failed]
    taken = fastest(answered if stores and answered else tried).kind
    why = told(tried, places.num_nodes, taken)
    if taken in carriers:
        return Choice(taken, taken, f"{why}{lacks}")
    reads = "; stores are read one-sided" if stores else ""
    return Choice(taken, messages, f"{why}{reads}; messages go by {messages}{lacks}", False)


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
    return _own_kind(channel), (
        f"the ranks are on {places.num_nodes} nodes, connected by {channel.kind}, and {_build()}"
    )


def _own_kind(channel: Channel) -> str:
    """The kind of transport that carries the channel's calls, where there is one of the core."""
    return channel.kind if channel.kind in ("libfabric", "mpi") else "group"


def open_transport(channel: Channel, choice: Choice) -> _core.Transport:
    """A new transport. Collective."""
    transport = _open_messages(channel, choice.messages)
    if choice.name in ONE_SIDED:
        transport = _one_sided(choice.name, transport, channel.failure, choice.required)
    return choice.around(transport)


def _one_sided(
    kind: str, messages: _core.Transport, failure: _core.Failure, required: bool
) -> _core.Transport:
    make = _core.verbs_transport if kind == "verbs" else _core.fabric_transport
    return make(messages, failure, required)


def _trial_messages(channel: Channel, kind: str) -> _core.Transport:
    """For a first exchange: MPI's may fail without the group. Collective."""
    if kind == "mpi":
        return _mpi(channel, patience_s(channel), _core.Failure())
    return _open_messages(channel, kind)


def _mpi(channel: Channel, timeout_s: float, failure: _core.Failure) -> _core.Transport:
    handle = channel.handle if isinstance(channel, TransportChannel) else WORLD
    return _core.mpi_transport(handle, timeout_s, failure=failure)


def _open_messages(channel: Channel, kind: str) -> _core.Transport:
    """A new transport of a kind that carries messages. Collective."""
    rank, size, timeout_s = channel.rank, channel.size, channel.timeout_s
    transport: _core.Transport
    if kind == "loopback" and size == 1:
        (transport,) = _core.loopback_transports(1, timeout_s, [channel.failure])
    elif kind in ("loopback", "libfabric") and isinstance(channel, TransportChannel):
        transport = channel.transport()
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
        transport = _mpi(channel, timeout_s, channel.failure)
    else:
        transport = _core.group_transport(channel.duplicate(), rank, size, timeout_s)
    return transport


def _has_mpi(channel: Channel, launcher: str) -> bool:
    """Whether MPI carries messages between these ranks, where all of them have it: a channel of
    another kind knows no communicator of theirs, so that they must be all of MPI_COMM_WORLD."""
    if channel.kind == "mpi":
        return True
    if "mpi4py.MPI" in sys.modules and not is_of_the_core():
        return False  # the launcher is that MPI's
    if not _core.build_info()["mpi"] or launcher != "mpirun":
        return False
    return place_in_mpi(os.environ) == (channel.rank, channel.size)


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
