"""Ranks that meet at a store, torch's or GEAR's own: who comes, and why their group ends."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn, TypeVar

from gear.distributed.calls import STORE_WAIT_S, Late, in_time, soon
from gear.distributed.channels.base import Absence
from gear.distributed.channels.messages import MessageChannel
from gear.distributed.channels.roster import (
    AGREE_S,
    DEAF_S,
    SILENT,
    Roll,
    lacking,
    said_by_all,
    stay_until_all_heard,
    stay_until_heard,
    tell_failed,
    told_failed,
    wait_for_places,
)
from gear.distributed.meeting.store import part_of
from gear.distributed.member import Member
from gear.distributed.process_life import keep_for_ever, last
from gear.distributed.same import named
from gear.distributed.timeout import LOOK_S, SLICE_S, Limit
from gear.distributed.waiting import Waiting
from gear.errors import GearError, TransportError

T = TypeVar("T")

HEARD_S = 1.0  # for ranks that are in a call, to hear why another ends


class StoreRanks(MessageChannel):
    """Ranks with a store, in which each has its place. They `meet`; then something connects them.

    The first rank to fail tells the others why in the store.

    Args:
        store: for these ranks alone, in which this one has its place.
        server: the rank whose process serves the store; None: none of them.
    """

    def __init__(
        self, store: Any, rank: int, size: int, timeout_s: float, *, server: int | None
    ) -> None:
        super().__init__(rank, size, timeout_s)
        self._store: Any = store
        self._server = server
        self._next_look = 0.0
        self._absent: set[int] = set()  # for whom the group has failed
        self.roll = Roll(store, rank, size, server)
        # Of two runs at one address who comes too late tells the store. One rank looks for all.
        self.told = partial(_told_at, store) if rank == 0 else None
        self._heard = 0  # answers that the ranks have taken, once all are as far as this one

    def meet(self, meeting: Limit, waiting: Waiting) -> list[Any]:
        """Returns what the ranks said of themselves, by rank, when all have come to the store.

        Args:
            meeting: how long the ranks have for coming.
            waiting: the wait for them, around this.

        Raises:
            TransportError: a rank did not come in time.
        """

        def come() -> tuple[list[int], list[Any]]:
            absent = wait_for_places(self._store, self.size, meeting.end, waiting.tell)
            return absent, [] if absent else self._said_by_all(self._store, meeting)

        absent, said = self.guarded(come, meeting)
        if absent:
            raise TransportError(
                f"[transport] {named(absent)} did not start within {meeting.seconds:g} s: look at "
                "the launcher's output, or raise timeout_s (GEAR_TIMEOUT_S)"
            )
        self.members = tuple(Member.from_json(one["member"]) for one in said)
        return said

    def tell_all(self, text: str, what: str, meeting: Limit) -> list[Any]:
        """What all ranks told in this, by rank: values that JSON can carry, one store a question.

        what: tells several of these apart.
        """
        store = part_of(self._store, what)

        def tell() -> list[Any]:
            deadline = max(meeting.end, time.monotonic() + STORE_WAIT_S)
            in_time(deadline, lambda: store.set(f"rank {self.rank}", text), SILENT)
            absent = wait_for_places(
                store,
                self.size,
                deadline,
                # Where all have told, one may have refused that, and ended, before this reads it.
                lambda absent: self.look_for_the_connecting() if absent else None,
                self._store,
            )
            if absent:
                late = Absence(late=tuple(absent), timeout_s=meeting.seconds)
                self._finish(self.agreed(late), meeting)
            return self._said_by_all(store, meeting)

        return self.guarded(tell, meeting)

    def _said_by_all(self, store: Any, meeting: Limit) -> list[Any]:
        deadline = max(meeting.end, time.monotonic() + STORE_WAIT_S)
        said = in_time(deadline, lambda: said_by_all(store), SILENT)
        self._heard += self.size
        in_time(deadline, lambda: self._store.add("heard", 1), SILENT)
        return said

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Around what all ranks refuse alike by what all have said: the process that serves the
        store stays until they have heard it."""
        try:
            yield
        except (GearError, OSError) as error:
            if self._server == self.rank and not isinstance(error, TransportError):
                last.append(partial(stay_until_all_heard, self._store, self._heard))
            raise

    def guarded(self, step: Callable[[], T], meeting: Limit) -> T:
        """What `step` returns; what it raises ends the group, with what may be the cause."""
        try:
            return step()
        except TransportError as error:
            self._give_up(str(error))
        except (GearError, OSError, ImportError) as error:
            self.pass_on(error, "Group", alone=True)
            raise
        except (RuntimeError, ValueError, Late) as error:
            self._give_up_connecting(error, meeting)

    def _give_up_connecting(self, error: Exception, meeting: Limit) -> NoReturn:
        """Because of `error`, which says nothing of ranks: the store may."""
        server = () if self._server in (None, self.rank) else (self._server,)
        try:
            found = self._asked(STORE_WAIT_S)
        except RuntimeError:
            self._finish(Absence(ended=server), meeting)
        except Late:
            waited_s = STORE_WAIT_S if meeting.left() else meeting.seconds
            self._finish(Absence(late=server, timeout_s=waited_s), meeting)
        else:
            if found:
                self._finish(self._told(found), meeting)
        reason = next(iter(str(error).splitlines()), "")
        self._give_up(
            f"[transport] {self._who(self.rank)} could not connect to the other {self.size - 1} "
            f"ranks: {reason}; look at their output, or name the network interface in "
            "GLOO_SOCKET_IFNAME"
        )

    def name_the_silent(self, meeting: Limit) -> None:
        """Calls the roll, of which those hear that still connect. Raises TransportError where ranks
        do not answer that have not connected either."""
        soon(lambda: self._store.set("roll call", "here"))
        silent = sorted(set(range(self.size)) - self.answered(STORE_WAIT_S))
        keys = [f"connected {rank}" for rank in silent]
        places = soon(lambda: lacking(self._store, keys))
        if places is not None:
            silent = [silent[place] for place in places]
        if silent:
            late = Absence(late=tuple(silent), timeout_s=meeting.seconds)
            self._finish(self.agreed(late), meeting)

    def say_connected(self) -> None:
        soon(lambda: self._store.set(f"connected {self.rank}", "here"))

    def look_for_the_connecting(self) -> None:
        """At those that connect, every LOOK_S: the group's first calls do not begin without all."""
        due = time.monotonic() >= self._next_look
        self._raise_if_failed()
        self._look()
        if not due:
            return
        ended = self.ended(range(self.size))
        if ended:
            self._finish(self.agreed(Absence(ended=tuple(sorted(ended)))), Limit.of(self.timeout_s))
        if soon(lambda: self._store.check(["roll call"])):
            raise Late("another rank could not connect to all")

    # ---- why the group has ended ----

    def agreed(self, absence: Absence) -> Absence:
        return self._agree(absence) or absence

    def _agree(self, absence: Absence) -> Absence | None:
        """`agreed`; None where the store does not answer. Where it is gone, the rank that served it
        has ended first: otherwise it would have stayed until its words were heard."""
        gone = None if self._server is None else Absence(ended=(self._server,))
        if gone and self.ended(gone.ended):
            return gone
        mine = json.dumps({"absence": [absence.ended, absence.late, absence.timeout_s]})
        # Where that rank is late, the store may well be silent.
        wait_s = STORE_WAIT_S if self._server in absence.late else AGREE_S
        store = self._store
        until = time.monotonic() + wait_s
        try:
            found = in_time(until, lambda: store.compare_set("failed", "", mine), "")
        except RuntimeError:
            return gone
        except Late:
            return None
        return self._told(found)

    def _told(self, found: bytes) -> Absence:
        """What a rank wrote into the store when the group failed; raises its words."""
        told = json.loads(found)
        if "text" in told:
            self._give_up(told["text"])
        ended, late, timeout_s = told["absence"]
        self._absent = {*ended, *late}
        return Absence(tuple(ended), tuple(late), timeout_s)

    def _pass_on(self, text: str) -> None:
        store = self._store
        if store is None:
            return
        tell_failed(store, text, heard_by=self.rank)
        # With the rank that serves the store go the words.
        ranks = set(range(self.size)) if self._server == self.rank else {self.rank}
        ranks -= self._absent
        here = [self.members[rank] for rank in ranks & self._on_this_host()]
        # Where this rank is the cause itself, all that who hears nothing lacks is why.
        most_s = HEARD_S if self._family.by_itself else AGREE_S
        last.append(partial(stay_until_heard, store, ranks, here, most_s))

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._next_look or self._store is None:
            return
        self._next_look = now + LOOK_S
        found = self._said(SLICE_S * 3)
        if found is None:
            self._next_look = now + DEAF_S
        elif found:
            self._finish(self._told(found), Limit.of(self.timeout_s))

    def _said(self, wait_s: float) -> bytes | None:
        """As `_asked`; None: the store is gone, or silent."""
        try:
            return self._asked(wait_s)
        except (RuntimeError, Late):
            return None

    def _asked(self, wait_s: float) -> bytes:
        """What a rank wrote when the group failed; empty: nothing.

        Raises RuntimeError where the store is gone, Late where it is silent.
        """
        store = self._store
        return in_time(
            time.monotonic() + wait_s,
            lambda: store.get("failed") if store.check(["failed"]) else b"",
            SILENT,
        )

    def answered(self, wait_s: float) -> set[int]:
        return self.roll(wait_s)

    def close(self) -> None:
        super().close()
        self._store = None

    def forget(self) -> None:
        if not self._family.forked:
            keep_for_ever(self._store)
        super().forget()


def _told_at(store: Any) -> str | None:
    return soon(lambda: told_failed(store), SLICE_S * 3)
