"""Ranks that a framework of the program has connected, and that GEAR connects for itself."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

from gear import _core
from gear.distributed.calls import STORE_WAIT_S, Late
from gear.distributed.channels.base import Channel
from gear.distributed.channels.gloo import GlooChannel
from gear.distributed.member import Member
from gear.distributed.same import named
from gear.distributed.timeout import Limit
from gear.errors import TransportError

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
        self.told: Callable[[], str] | None = None

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
        except (RuntimeError, ValueError, Late) as error:
            if not isinstance(error, TransportError):
                ended = [member.rank for member in self._gone()]
                reason = next(iter(str(error).splitlines()), "") or type(error).__name__
                if isinstance(error, Late):
                    reason = f"not all ranks of {self.name} came within {meeting.seconds:g} s"
                who = f"{named(ended)} has ended" if ended else reason
                error = TransportError(
                    f"[transport] {who}: all ranks make this group; look at their output"
                )
            self.failure.tell(str(error))
            raise error from None

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """As `GlooChannel.refusing`; nobody serves the others here."""
        yield

    def look_for_the_connecting(self) -> None:
        """Raises TransportError where a rank of this machine has ended."""
        gone = self._gone()
        if gone:
            text = f"[transport] {gone[0]} has ended: start the run again from its last checkpoint"
            self.failure.tell(text)
            raise TransportError(text)

    def _gone(self) -> list[Member]:
        here = Member.here(self.rank).host
        return [member for member in self.members if member.host == here and member.has_ended()]

    def by_gloo(self, meeting: Limit) -> Channel:
        """Over a store that rank 0 serves."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        wait = timedelta(seconds=max(meeting.left(), STORE_WAIT_S))

        def store(host: str, port: int) -> Any:
            serves = self.rank == 0
            return TCPStore(host, port, self.size, serves, wait, wait_for_workers=False)

        served: list[Any] = []
        address: tuple[str, int] = ("", 0)
        if self.rank == 0:
            served.append(store(socket.gethostname(), 0))
            address = (socket.gethostname(), served[0].port)
        address = tuple(self.tell_all(json.dumps(address), "store", meeting)[0])
        opened = served[0] if served else self.guarded(lambda: store(*address), meeting)
        ranks = GlooChannel(opened, self.rank, self.size, self.timeout_s, server=0)
        ranks.members = self.members
        return ranks.by_gloo(meeting)


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
