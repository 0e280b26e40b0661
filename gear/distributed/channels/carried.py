"""A channel over a transport of the core."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence

from gear import _core
from gear.distributed.channels.base import Absence, Channel, Views
from gear.distributed.channels.frame import FIRST_BYTES, ROOM, Frame, copy_beginning
from gear.distributed.member import Member
from gear.distributed.process_life import closed_at_exit, keep_for_ever
from gear.distributed.timeout import Limit
from gear.errors import TransportError

WHO = re.compile(r"\brank (\d+)(?: \(pid \d+\))?(?! \(pid)")


class TransportChannel(Channel):
    """Calls over a transport of the core, which finds out who is missing, and tells failures.

    What all ranks get goes by the transport's allgather, so that a rank talks to few others however
    many there are.

    Args:
        transport: of this group alone; it shares `failure`.
        members: the ranks.
        answered: calls the roll of ranks, as `Channel.answered`; None: nothing can.
    """

    def __init__(
        self,
        transport: _core.Transport,
        members: Sequence[Member],
        failure: _core.Failure,
        *,
        answered: Callable[[float], set[int]] | None = None,
    ) -> None:
        super().__init__(transport.rank, transport.size, transport.timeout_s)
        self.kind = transport.name
        self.members = tuple(members)
        self.failure = failure
        self._transport: _core.Transport | None = transport
        self._answered = answered
        closed_at_exit.add(self)

    def exchange_bytes(
        self, to: Views, sizes: Sequence[int] | None = None, timeout_s: float | None = None
    ) -> Views:
        with self._calling("exchange", timeout_s) as (transport, own):
            texts = [bytes(own.first_part(view)) + bytes(view[ROOM:]) for view in to]
            told = None
            if sizes is not None:  # what is empty is not sent
                texts = [text if view.nbytes else b"" for text, view in zip(texts, to, strict=True)]
                told = [size and FIRST_BYTES + max(size - ROOM, 0) for size in sizes]
            came = [memoryview(text) for text in transport.exchange(texts, told)]
            return [
                self._whole(peer, own, text[:FIRST_BYTES], text[FIRST_BYTES:])
                if text.nbytes
                else memoryview(b"")
                for peer, text in enumerate(came)
            ]

    def _gather(
        self,
        kind: str,
        mine: memoryview,
        into: Views | None,
        timeout_s: float | None = None,
        *,
        waited_s: float = 0.0,
    ) -> Views:
        with self._calling(kind, timeout_s, waited_s) as (transport, own):
            size = self.size
            told = memoryview(transport.allgather(bytes(own.first_part(mine))))
            firsts = [told[r * FIRST_BYTES : (r + 1) * FIRST_BYTES] for r in range(size)]
            lengths = [
                self._check(peer, own, first, into[peer] if into else None)[1]
                for peer, first in enumerate(firsts)
            ]
            longest = max(max(lengths) - ROOM, 0)
            rests = [memoryview(b"")] * size
            if longest:
                rest = memoryview(transport.allgather(bytes(mine[ROOM:]).ljust(longest, b"\0")))
                rests = [rest[r * longest : (r + 1) * longest] for r in range(size)]
            texts = [
                self._whole(peer, own, firsts[peer], rests[peer][: max(lengths[peer] - ROOM, 0)])
                for peer in range(size)
            ]
            if into is None:
                return texts
            for view, text in zip(into, texts, strict=True):
                view[:] = text
            return into

    def _whole(self, peer: int, own: Frame, first: memoryview, rest: memoryview) -> memoryview:
        """The message of `peer` of which these are the first part and what comes behind it."""
        _, length = self._check(peer, own, first, None)
        text = memoryview(bytearray(length))
        copy_beginning(first, text)
        text[ROOM:] = rest
        return text

    @contextlib.contextmanager
    def _calling(
        self, kind: str, timeout_s: float | None, waited_s: float = 0.0
    ) -> Iterator[tuple[_core.Transport, Frame]]:
        """Around a collective call; what the transport says of ranks is said of members."""
        with self.doing(kind):
            self._raise_if_failed()
            transport = self._open()
            left_s = self.timeout_s if timeout_s is None else timeout_s
            if transport.timeout_s != left_s:
                transport.timeout_s = left_s
            limit = Limit(waited_s + left_s, time.monotonic() + left_s)
            self.failure.doing(self._doing)
            try:
                yield transport, self._next(kind)
            except TransportError as error:
                self.failure.tell(str(error))
                raise TransportError(self._of_members(str(error), limit)) from None
            finally:
                self.failure.doing("")

    def _of_members(self, text: str, limit: Limit) -> str:
        if re.search(rf"\brank {self.rank} did not take part in \w+ within", text):
            return str(
                self.failure_of(Absence(late=(self.rank,), timeout_s=limit.seconds), limit.seconds)
            )
        subject, colon, rest = text.partition(": ")

        def member(found: re.Match[str]) -> str:
            rank = int(found[1])
            return str(self.members[rank]) if rank < len(self.members) else found[0]

        return WHO.sub(member, subject) + colon + rest

    def _open(self) -> _core.Transport:
        if self._transport is None:
            raise TransportError(
                "[transport] this channel is closed: its group was, or Python ends"
            )
        return self._transport

    @property
    def failed(self) -> str:
        text = self.failure.text
        return self._of_members(text, Limit.of(self.timeout_s)) if text else ""

    def transport(self) -> _core.Transport:
        """Another transport of the same kind between the same ranks. Collective."""
        with self._calling("allgather", None) as (transport, _):
            return transport.duplicate()

    def duplicate(self) -> Channel:
        made = self.transport()
        twin = self._twin()
        twin._transport = made
        closed_at_exit.add(twin)
        return twin

    def _look(self) -> None:
        if self._transport is not None:
            try:
                self._transport.look()
            except TransportError as error:
                self.failure.tell(str(error))
                raise TransportError(self.failed) from None

    def agreed(self, absence: Absence) -> Absence:
        self._look()
        self.failure.tell(str(self.failure_of(absence, absence.timeout_s)))
        raise TransportError(self.failed)

    def answered(self, wait_s: float) -> set[int]:
        return super().answered(wait_s) if self._answered is None else self._answered(wait_s)

    def close(self) -> None:
        super().close()
        self._transport = None

    def forget(self) -> None:
        if not self._family.forked and self._transport is not None:
            keep_for_ever(self._transport)
        super().forget()
