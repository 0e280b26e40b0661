"""A channel over a transport of the core."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence

from gear import _core
from gear.distributed.channels.base import Absence, Channel, Views
from gear.distributed.channels.frame import FIRST_BYTES, ROOM, Frame, copy_beginning
from gear.distributed.channels.roster import DEAF_S
from gear.distributed.member import Member
from gear.distributed.process_life import closed_at_exit, keep_for_ever
from gear.distributed.timeout import LOOK_S, Limit
from gear.errors import TransportError

# What the transports say of ranks that do not come.
LATE = re.compile(
    r"did not take part in (?:\w+|the start of the transport) within (\S+) s: see what "
    r"(?:it does|they do), or set a longer time-out"
)
ONE = re.compile(r"\brank (\d+)\b(?: \(pid \d+\))?(?! \(pid)")
MANY = re.compile(r"\branks ((?:\d+, )*\d+) and (\d+)( more)?")


def of_members(text: str, members: Sequence[Member], seconds: float | None = None) -> str:
    """What a transport of the core says, with the ranks as messages name them, and what to do.

    seconds: of the call; None: as the transport says.
    """
    text = LATE.sub(
        lambda found: (
            f"did not take part within {found[1] if seconds is None else f'{seconds:g}'} s: look "
            "for the cause there, or raise timeout_s (GEAR_TIMEOUT_S)"
        ),
        text,
    )
    subject, colon, rest = text.partition(": ")

    def name(rank: str) -> str:
        return str(members[int(rank)]) if int(rank) < len(members) else f"rank {rank}"

    def several(found: re.Match[str]) -> str:
        ranks = [*found[1].split(", "), *([] if found[3] else [found[2]])]
        more = f" and {found[2]} more" if found[3] else ""
        return ", ".join(map(name, ranks)) + more

    if members:
        subject = ONE.sub(lambda found: name(found[1]), MANY.sub(several, subject))
    return subject + colon + rest


class TransportChannel(Channel):
    """Calls over a transport of the core, which finds out who is missing, and tells failures.

    What all ranks get goes by the transport's allgather, so that a rank talks to few others however
    many there are.

    Args:
        transport: of this group alone; it shares `failure`.
        members: the ranks.
        answered: calls the roll of ranks, as `Channel.answered`; None: the transport does.
        told: what was told to this rank elsewhere of the group's end, where the ranks met; empty:
            nothing; None: there was no answer. Without it nobody is told there.
        handle: in Fortran, of MPI's communicator of these ranks; 0: of all.
    """

    def __init__(
        self,
        transport: _core.Transport,
        members: Sequence[Member],
        failure: _core.Failure,
        *,
        answered: Callable[[float], set[int]] | None = None,
        told: Callable[[], str | None] | None = None,
        handle: int = 0,
    ) -> None:
        super().__init__(transport.rank, transport.size, transport.timeout_s)
        self.kind = transport.name
        self.members = tuple(members)
        self.failure = failure
        self._transport: _core.Transport | None = transport
        self._answered = answered
        self._told = told
        self.handle = handle
        self._next_question = 0.0
        self._said = ""  # of the group's end
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
            expected: Sequence[int | None] = [None] * self.size if sizes is None else sizes
            return [
                self._whole(peer, own, text[:FIRST_BYTES], text[FIRST_BYTES:], expected[peer])
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
                self._check(peer, own, first, into[peer].nbytes if into else None)[1]
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

    def _whole(
        self,
        peer: int,
        own: Frame,
        first: memoryview,
        rest: memoryview,
        expected: int | None = None,
    ) -> memoryview:
        """The message of `peer` of which these are the first part and what comes behind it."""
        _, length = self._check(peer, own, first, expected)
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
                self._said = self._said or self._of_members(str(error), limit.seconds)
                raise TransportError(self._said) from None
            finally:
                self.failure.doing("")

    def _of_members(self, text: str, seconds: float | None = None) -> str:
        text = of_members(text, self.members, seconds)
        own = re.match(
            rf"\[transport\] rank {self.rank} \([^)]*\) did not take part within (\S+) s", text
        )
        if own:
            late = Absence(late=(self.rank,), timeout_s=float(own[1]))
            return str(self.failure_of(late, late.timeout_s))
        return text

    def _open(self) -> _core.Transport:
        if self._transport is None:
            raise TransportError(
                "[transport] this channel is closed: its group was, or Python ends"
            )
        return self._transport

    @property
    def failed(self) -> str:
        text = self.failure.text
        if text and not self._said:
            self._said = self._of_members(text)
        return self._said

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
        now = time.monotonic()
        if self._told is not None and now >= self._next_question:
            text = self._told()
            self._next_question = now + (DEAF_S if text is None else LOOK_S)
            if text:
                self._give_up(text)
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
        if self._answered is not None:
            return self._answered(wait_s)
        return set(self._open().present(wait_s))

    def close(self) -> None:
        super().close()
        self._transport = None

    def forget(self) -> None:
        if not self._family.forked and self._transport is not None:
            keep_for_ever(self._transport)
        super().forget()
