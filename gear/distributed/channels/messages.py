"""A channel of messages from each rank to each, over what carries parts of known lengths."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence

from gear.distributed.channels.base import Absence, Channel, Views
from gear.distributed.channels.frame import ROOM, Frame, copy_beginning, room
from gear.distributed.timeout import Limit

Parts = Sequence[Sequence[memoryview]]


class MessageChannel(Channel):
    """Every rank sends one message to each: its first part, which says how long it is, then the
    rest."""

    def exchange_bytes(
        self, to: Views, sizes: Sequence[int] | None = None, timeout_s: float | None = None
    ) -> Views:
        rooms = None if sizes is None else [memoryview(bytearray(size)) for size in sizes]
        return self._call("exchange", to, rooms, timeout_s)

    def _gather(
        self,
        kind: str,
        mine: memoryview,
        into: Views | None,
        timeout_s: float | None = None,
        *,
        waited_s: float = 0.0,
    ) -> Views:
        always = kind == "barrier"
        to = [mine] * self.size
        return self._call(kind, to, into, timeout_s, waited_s=waited_s, always=always)

    def _call(
        self,
        kind: str,
        to: Views,
        from_: Views | None,
        timeout_s: float | None = None,
        *,
        waited_s: float = 0.0,
        always: bool = False,
    ) -> Views:
        """One collective call; `from_` None: as long as each rank says. Returns what came.

        waited_s: for the same ranks, before this call; its error says how long it was in all.
        always: also between ranks that send each other nothing.
        """
        with self.doing(kind):
            self._raise_if_failed()  # what the others sent since is for another call
            if from_ is not None and to[self.rank].nbytes:
                from_[self.rank][:] = to[self.rank]
            left_s = self.timeout_s if timeout_s is None else timeout_s
            limit = Limit(waited_s + left_s, time.monotonic() + left_s)
            told = from_ is None
            longer = told and any(
                view.nbytes > ROOM for rank, view in enumerate(to) if rank != self.rank
            )
            own = self._next(kind, longer=longer)
            parts_to = [self._parts(own, view, always or told, told) for view in to]
            parts_from = [
                self._room(None if from_ is None else view, always)
                for view in (from_ or [memoryview(b"")] * self.size)
            ]
            parts_to[self.rank] = parts_from[self.rank] = []
            lengths = [0] * self.size
            rests = longer

            def arrived(peer: int) -> None:
                nonlocal rests
                expected = from_[peer].nbytes if from_ else None
                frame, lengths[peer] = self._check(peer, own, parts_from[peer][0], expected)
                rests = rests or frame.longer

            self._finish(self._move(parts_to, parts_from, limit, arrived), limit)
            if from_ is None:
                return self._whole(to, parts_from, lengths, rests, limit)
            for view, parts in zip(from_, parts_from, strict=True):
                if parts:
                    copy_beginning(parts[0], view)
            return from_

    def _whole(
        self, to: Views, firsts: Parts, lengths: list[int], rests: bool, limit: Limit
    ) -> Views:
        """The messages of which `firsts` began, each rank having said how long they are; `rests`:
        some rank's go on, which all ranks have heard."""
        texts = [self._text(peer, length) for peer, length in enumerate(lengths)]
        texts[self.rank] = to[self.rank]
        for text, parts in zip(texts, firsts, strict=True):
            if parts:
                copy_beginning(parts[0], text)
        rest_to = [[view[ROOM:]] if view.nbytes > ROOM else [] for view in to]
        rest_from = [[text[ROOM:]] if text.nbytes > ROOM else [] for text in texts]
        rest_to[self.rank] = rest_from[self.rank] = []
        if rests:
            self._finish(self._move(rest_to, rest_from, limit, lambda _: None), limit)
        return texts

    def _text(self, peer: int, length: int) -> memoryview:
        try:
            return memoryview(bytearray(length))
        except (MemoryError, OverflowError):
            self._give_up(
                f"[transport] {self._who(peer)} announces {length} bytes, for which "
                f"{self._who(self.rank)} has no memory"
            )

    def _parts(self, own: Frame, view: memoryview, always: bool, told: bool) -> list[memoryview]:
        """A message as its first part, and what is left of it unless the first tells how much."""
        if not (view.nbytes or always):
            return []
        first = own.first_part(view)
        return [first, view[ROOM:]] if view.nbytes > ROOM and not told else [first]

    def _room(self, view: memoryview | None, always: bool) -> list[memoryview]:
        """Where a message of a known or unknown (None) length is received."""
        if not (view is None or view.nbytes or always):
            return []
        return [room(), view[ROOM:]] if view is not None and view.nbytes > ROOM else [room()]

    @abstractmethod
    def _move(
        self, to: Parts, from_: Parts, limit: Limit, arrived: Callable[[int], None]
    ) -> Absence:
        """Sends all parts of ``to[r]`` to rank r and fills those of ``from_[r]`` with what r sends.

        Calls ``arrived(r)`` when the first part from r is in; what that raises ends the call, as
        does what `_raise_if_failed` raises, which is asked every SLICE_S. Returns who did not take
        part within `limit`; once it returns, no byte is touched any more.
        """
