"""Connects ranks that have met, by what reaches all of them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar

from gear import _core
from gear.distributed.calls import STORE_WAIT_S, Late, in_time
from gear.distributed.channels.base import Channel
from gear.distributed.channels.carried import TransportChannel, of_members
from gear.distributed.channels.interfaces import interface_towards
from gear.distributed.member import Member
from gear.distributed.places import Places
from gear.distributed.timeout import Limit
from gear.distributed.together import as_of_gear, raised_on
from gear.errors import GearError, InvalidArgument, TransportError

log = logging.getLogger("gear")
T = TypeVar("T")

# Of libfabric's tcp, called net in 1.16 and 1.17, where nobody has set them; it reads them once.
TCP = {
    # 1,024 buffers for what nobody has asked for yet: 17 MiB a rank by its own default, so 2.
    # Longer messages pass.
    "FI_TCP_MAX_RX_SIZE": "1024",
    # Of a message that a full socket takes nothing of, up to 9,000 bytes wait, by its own default,
    # for the next call of a rank that may make none, and are said to have left.
    "FI_TCP_STAGING_SBUF_SIZE": "0",
    "FI_NET_STAGING_SBUF_SIZE": "0",
}
MOST_BY_MEMORY = 1024  # ranks of a node that shared_memory carries
SLOW = "a rank does not answer"
# In which the operator names the network interface: libfabric goes by these itself,
BY_LIBFABRIC = ("GEAR_FABRIC_DOMAIN", "FI_TCP_IFACE")
# and this one leads to the other nodes for gloo, and so for it.
FOR_GLOO = "GLOO_SOCKET_IFNAME"


class Met(Protocol):
    """Ranks that have found each other, and are not connected.

    Attributes:
        roll, told: as `TransportChannel` takes them.
    """

    rank: int
    size: int
    timeout_s: float
    members: tuple[Member, ...]
    failure: _core.Failure

    @property
    def roll(self) -> Callable[[float], set[int]] | None: ...

    @property
    def told(self) -> Callable[[], str | None] | None: ...

    def tell_all(self, text: str, what: str, meeting: Limit) -> list[Any]:
        """What all ranks tell, by rank; texts of JSON. `what` tells several calls apart."""
        ...

    def guarded(self, step: Callable[[], T], meeting: Limit) -> T:
        """What `step` returns; what it raises ends the group."""
        ...

    def look_for_the_connecting(self) -> None:
        """Raises what is known to have ended the group."""
        ...

    def name_the_silent(self, meeting: Limit) -> None:
        """Raises TransportError where a roll call finds ranks that do not answer, and have not
        connected."""
        ...

    def say_connected(self) -> None:
        """For roll calls of others: this rank waits in the group's first call, and hears none."""
        ...

    def by_gloo(self, meeting: Limit) -> Channel: ...


@dataclass(frozen=True)
class Reach:
    """How messages by libfabric reach a rank, as it tells the others.

    Attributes:
        address: in hexadecimal; empty: they do not.
        provider: of libfabric: ranks of one group have the same.
        lack: why they do not.
        gloo: this rank has torch, and so gloo.
        room: the name of the memory that the lowest rank of a node has made for it; empty: none.
    """

    address: str = ""
    provider: str = ""
    lack: str = ""
    gloo: bool = field(default_factory=lambda: find_spec("torch") is not None)
    room: str = ""


def connect(ranks: Met, wanted: str, master: str, meeting: Limit) -> Channel:
    """The channel between ranks that have met: over memory where all are of one node, else by
    libfabric, or by gloo where that is not to be had. Collective.

    Args:
        ranks: have met, and are not connected.
        wanted: the transport that the user asked for: ``"group"`` is gloo, ``"libfabric"`` that.
        master: a host name or address by which the other machines reach that of rank 0; "": none.

    Raises:
        InvalidArgument: `wanted` cannot be had; on all ranks alike.
        OutOfMemory, IoError: rank 0 cannot make shared memory for the ranks of a node; on all ranks
            alike.
        TransportError: a rank does not answer, or has ended.
    """
    one_node = len({(member.node, member.host) for member in ranks.members}) == 1
    by_memory = one_node and ranks.size <= MOST_BY_MEMORY
    if wanted != "group" and by_memory and wanted != "libfabric":
        return _by_memory(ranks, meeting)
    if wanted != "group":
        channel = _by_libfabric(ranks, wanted, master, meeting)
        if channel is not None:
            return channel
    return ranks.by_gloo(meeting)


def _by_memory(ranks: Met, meeting: Limit) -> Channel:
    name, kind, lack, room = "", "", "", None
    failure: Exception | None = None
    if ranks.rank == 0:  # the others look for it when they have heard that it is there
        name = _core.made_up_name()
        try:
            room = _core.SharedRoom(name, ranks.size)
        except (GearError, OSError) as error:
            failure = as_of_gear(error)
            kind, lack = type(failure).__name__, str(failure)
    name, kind, lack = ranks.tell_all(json.dumps([name, kind, lack]), "room", meeting)[0]
    if failure is not None:
        raise failure
    if kind:
        raise raised_on(0, kind, lack)
    return _joined(
        ranks,
        meeting,
        lambda: _core.shared_memory_transport(
            name, ranks.rank, ranks.size, ranks.timeout_s, ranks.failure, room
        ),
    )


def _by_libfabric(ranks: Met, wanted: str, master: str, meeting: Limit) -> Channel | None:
    place, reach = _place(ranks.members, ranks.rank, master)
    nodes = Places(ranks.rank, ranks.members).nodes
    own = [rank for rank, node in enumerate(nodes) if node == nodes[ranks.rank]]
    room = None
    if place is not None and own[0] == ranks.rank and 1 < len(own) <= MOST_BY_MEMORY:
        with contextlib.suppress(GearError, OSError):  # then all are told across the nodes
            name = _core.made_up_name()
            room = _core.SharedRoom(name, len(own))
            reach = replace(reach, room=name)
    told = ranks.tell_all(json.dumps(asdict(reach)), "reach", meeting)
    reaches = [Reach(**one) for one in told]
    lack = _lack(reaches)
    if lack and wanted == "libfabric":
        raise InvalidArgument(
            f"[transport] transport 'libfabric' needs libfabric with a provider on every "
            f"rank: {lack}"
        )
    if lack and not all(reach.gloo for reach in reaches):
        raise InvalidArgument(
            f"[group] nothing that is installed connects the ranks: libfabric does not ({lack}), "
            "and some have no torch for its gloo: install libfabric (libfabric1, libfabric) on "
            "every node, or torch"
        )
    if lack or place is None:
        if ranks.rank == 0:
            log.info("[group] the ranks are connected by gloo, each with each: %s", lack)
        return None
    addresses = [bytes.fromhex(one.address) for one in reaches]
    here = ranks.members[ranks.rank].host
    space = _process_numbers()
    near = [
        (member.rank, member.pid, member.start_time, space)
        for member in ranks.members
        if member.host == here and member.rank != ranks.rank
    ]
    return _joined(
        ranks,
        meeting,
        lambda: _first_word(
            place.connect(
                *(addresses, ranks.rank, ranks.timeout_s, ranks.failure, near),
                nodes=nodes if _have_rooms(reaches, nodes) else None,
                room=(reaches[own[0]].room, room),
            )
        ),
    )


def _process_numbers() -> int:
    """Of the namespace that this host's process numbers are of; 0: the system does not tell."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _have_rooms(reaches: list[Reach], nodes: Sequence[int]) -> bool:
    """Whether each node with several ranks has memory for them, and there is one."""
    several = {node for node in nodes if nodes.count(node) > 1}
    return bool(several) and all(reaches[nodes.index(node)].room for node in several)


def _place(
    members: tuple[Member, ...], rank: int, master: str
) -> tuple[_core.FabricPlace | None, Reach]:
    """Where messages for this rank arrive, and what the others are to know of it."""
    if not _core.build_info()["fabric"]:
        return None, Reach(lack="a build without rdma/fabric.h of libfabric")
    interface = os.environ.get(FOR_GLOO, "").partition(",")[0]
    if any(os.environ.get(name) for name in BY_LIBFABRIC):
        interface = ""
    elif not interface:
        interface = _interface(members, rank, master)
    first = members[0]
    launch = f"{first.host} {first.pid} {first.start_time} {master}"
    token = int.from_bytes(hashlib.sha256(launch.encode()).digest()[:8], "little")
    for name, value in TCP.items():
        os.environ.setdefault(name, value)
    try:
        place = _core.FabricPlace(token, interface)
    except GearError as error:
        return None, Reach(lack=str(error).removeprefix("[transport] "))
    log.debug("[group] rank %d is reached by libfabric, %s", rank, place.text)
    return place, Reach(place.address.hex(), place.provider)


def _interface(members: tuple[Member, ...], rank: int, master: str) -> str:
    """Towards rank 0's machine, as the launch calls it; there, towards a rank of another one."""
    here = members[rank].host
    far = next((member.hostname for member in members if member.host != here), "")
    if not far:
        return interface_towards(master or "localhost")
    towards = far if here == members[0].host or not master else master
    found = interface_towards(towards)
    return "" if found == "lo" else found


def _lack(reaches: list[Reach]) -> str:
    """Why the ranks do not all reach each other; empty: they do."""
    for rank, reach in enumerate(reaches):
        if reach.lack:
            return f"rank {rank} has none: {reach.lack}"
        if reach.provider != reaches[0].provider:
            return (
                f"rank 0 has provider {reaches[0].provider}, rank {rank} {reach.provider}: set "
                "GEAR_FABRIC_PROVIDER"
            )
    return ""


def _first_word(transport: _core.Transport) -> _core.Transport:
    """With the connections that an allgather needs."""
    transport.allgather(b"?")
    return transport


def _joined(ranks: Met, meeting: Limit, make: Callable[[], _core.Transport]) -> Channel:
    """Over the transport that `make` returns when all ranks have joined it; meanwhile this looks
    whether they live."""
    deadline = max(meeting.end, time.monotonic() + STORE_WAIT_S) + STORE_WAIT_S

    def join() -> Any:
        try:
            return in_time(deadline, make, SLOW, ranks.look_for_the_connecting)
        except Late:
            ranks.name_the_silent(meeting)
            raise

    try:
        transport = ranks.guarded(join, meeting)
    except TransportError as error:
        raise TransportError(of_members(str(error), ranks.members)) from None
    ranks.say_connected()
    roll, told = ranks.roll, ranks.told
    return TransportChannel(transport, ranks.members, ranks.failure, answered=roll, told=told)
