"""Ranks that a framework of the program has connected, and that GEAR connects for itself."""

from __future__ import annotations

import json
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, TypeVar

from gear import _core
from gear.distributed.calls import STORE_WAIT_S, Late, in_time
from gear.distributed.channels.base import Channel
from gear.distributed.channels.gloo import NO_TORCH, GlooChannel
from gear.distributed.member import Member
from gear.distributed.same import named
from gear.distributed.timeout import Limit
from gear.errors import GearError, InvalidArgument, TransportError

T = TypeVar("T")


class FrameworkRanks(ABC):
    """MPI's ranks, or Horovod's: asked who they are, and for what connects them, and no more.

    Attributes:
        members: the ranks, once they have met.
        failure: of the group.
    """

    name = ""

    def __init__(self, rank: int, size: int, timeout_s: float) -> None:
        self.rank = rank
        self.size = size
        self.timeout_s = timeout_s
        self.members: tuple[Member, ...] = ()
        self.failure = _core.Failure()
        self.roll: Callable[[float], set[int]] | None = None
        self.told: Callable[[], str | None] | None = None

    @abstractmethod
    def _gather(self, text: bytes, limit: Limit) -> list[bytes]:
        """What every rank gives, by rank. Raises Late, and RuntimeError where ranks have left."""

    def meet(self, given: dict[str, Any], meeting: Limit) -> list[Any]:
        """Returns what all ranks were given by the user, by rank."""
        mine = json.dumps([Member.here(self.rank).as_json(), given])
        said = self.guarded(lambda: self.tell_all(mine, "members", meeting), meeting)
        self.members = tuple(Member.from_json(member) for member, _ in said)
        return [theirs for _, theirs in said]

    def tell_all(self, text: str, what: str, meeting: Limit) -> list[Any]:
        """As `GlooChannel.tell_all`."""
        told = self.guarded(lambda: self._gather(text.encode(), meeting), meeting)
        return [json.loads(one) for one in told]

    def guarded(self, step: Callable[[], T], meeting: Limit) -> T:
        """What `step` returns; what it raises ends the group."""
        try:
            return step()
        except TransportError as error:
            self.failure.tell(str(error))
            raise
        except (GearError, OSError, ImportError) as error:
            me = self.members[self.rank] if self.members else f"rank {self.rank}"
            kind = type(error).__name__
            self.failure.tell(f"[transport] {me} failed in Group with {kind}: {error}")
            raise
        except (RuntimeError, ValueError, Late) as error:
            ended = [member.rank for member in self._gone()]
            reason = _reason(error)
            if isinstance(error, Late):
                reason = reason or f"not all ranks of {self.name} came"
                reason += f" within {meeting.seconds:g} s"
            who = f"{named(ended)} has ended" if ended else reason
            text = f"[transport] {who}: all ranks make this group; look at their output"
            self.failure.tell(text)
            raise TransportError(text) from None

    def look_for_the_connecting(self) -> None:
        """Raises TransportError where a rank of this machine has ended."""
        gone = self._gone()
        if gone:
            text = f"[transport] {gone[0]} has ended: start the run again from its last checkpoint"
            self.failure.tell(text)
            raise TransportError(text)

    def name_the_silent(self, meeting: Limit) -> None:
        """Nothing tells who is."""
        return

    def say_connected(self) -> None:
        """Nobody asks for it."""
        return

    def _gone(self) -> list[Member]:
        here = Member.here(self.rank).host
        return [member for member in self.members if member.host == here and member.has_ended()]

    def by_gloo(self, meeting: Limit) -> Channel:
        """Over a store that rank 0 serves.

        Raises, on all ranks alike:
            InvalidArgument: a rank has no torch.
            TransportError: rank 0 cannot serve the store.
        """
        store, address, lack = None, ("", 0), ""
        has_torch = find_spec("torch") is not None
        if self.rank == 0 and has_torch:
            try:  # in half of the time: the others are to hear how it ended
                store = self._store(socket.gethostname(), 0, meeting.left() / 2)
                address = (socket.gethostname(), store.port)
            except Exception as error:  # noqa: BLE001 - the others wait to hear of it
                lack = _reason(error).removeprefix("[transport] ")
        told = self.tell_all(json.dumps([has_torch, address, lack]), "store", meeting)
        without = [rank for rank, (has, _, _) in enumerate(told) if not has]
        if without:
            have = "has" if len(without) == 1 else "have"
            raise InvalidArgument(f"{NO_TORCH}; {named(without)} {have} none")
        _, (host, port), lack = told[0]
        if lack:
            raise TransportError(
                f"[transport] rank 0 could not serve the ranks' meeting point at its host: {lack}"
            )
        if store is None:
            store = self.guarded(lambda: self._store(host, port, meeting.left()), meeting)
        ranks = GlooChannel(store, self.rank, self.size, self.timeout_s, server=0)
        ranks.members = self.members
        return ranks.by_gloo(meeting)

    def _store(self, host: str, port: int, wait_s: float) -> Any:
        """The store there, which rank 0 serves, at a port of its own."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        wait_s = max(wait_s, STORE_WAIT_S)

        def open_it() -> Any:
            wait = timedelta(seconds=wait_s)
            serves = self.rank == 0
            return TCPStore(host, port, self.size, serves, wait, wait_for_workers=False)

        return in_time(
            time.monotonic() + wait_s,
            open_it,
            f"{host} does not answer",
            self.look_for_the_connecting,
        )


def _reason(error: Exception) -> str:
    """The first line of what it says; empty for a wait that says nothing."""
    kind = "" if isinstance(error, Late) else type(error).__name__
    return next(iter(str(error).splitlines()), kind)


def done_by(limit: Limit, is_done: Callable[[], bool], look: Callable[[], None]) -> None:
    """Returns when it is done. Raises Late, and what `look` raises, which is asked meanwhile."""
    begin = time.monotonic()
    next_look = begin + 0.5
    while not is_done():
        now = time.monotonic()
        if now >= limit.end:
            raise Late("")
        if now >= next_look:
            look()
            next_look = now + 0.5
        if now - begin > 0.001:
            time.sleep(0.0005)
