"""Bytes over gloo, between processes that meet at a store of torch.distributed.

The connections are GEAR's own: a process group that a program uses for training, nccl or gloo, is
asked who its ranks are and no more, and none is made that torch.distributed would know of.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import resource
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np

from gear.distributed.calls import STORE_WAIT_S, Late, in_time, soon
from gear.distributed.channels.base import Absence, Channel
from gear.distributed.channels.messages import MessageChannel, Parts
from gear.distributed.channels.roster import (
    AGREE_S,
    DEAF_S,
    SILENT,
    Roll,
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
from gear.errors import InvalidArgument, OutOfMemory, TransportError

T = TypeVar("T")

SPARE_FILES = 64  # for what a program opens beside
MOMENT = timedelta(milliseconds=1)
NO_TAG = (1 << 31) - 1  # of no message
HEARD_S = 1.0  # for ranks that are in a call, to hear why another ends


@dataclass
class _Link:
    """What a channel and its duplicates have in common; the connections end with the last one."""

    store: Any
    pg: Any = None
    tags: int = 0  # given out
    next_look: float = 0.0
    absent: set[int] = field(default_factory=set)  # for whom the group has failed


class TorchChannel(MessageChannel):
    """Bytes over a gloo process group, as one message from each rank to each.

    It is made in two steps: `meet`, then `by_gloo`.

    Args:
        store: a torch.distributed store for these ranks alone, in which this one has its place.
        server: the rank whose process serves the store; None: none of them.
    """

    kind = "gloo"

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        timeout_s: float,
        *,
        server: int | None,
    ) -> None:
        super().__init__(rank, size, timeout_s)
        self._link = _Link(store)
        self._server = server
        self._tag = 0
        self.roll: Callable[[float], set[int]] | None = Roll(store, rank, size, server)
        # Of two runs at one address who comes too late tells the store. One rank looks for all.
        self.told: Callable[[], str] | None = partial(_told_at, store) if rank == 0 else None
        self._heard = 0  # answers that the ranks have taken, once all are as far as this one

    def _start(self) -> None:
        super()._start()
        self._waiter: _Waiter | None = None

    def _move(
        self, to: Parts, from_: Parts, limit: Limit, arrived: Callable[[int], None]
    ) -> Absence:
        waiter = self._waiter = self._waiter or self._new_waiter()
        pg = self._link.pg
        calls: list[_Post] = []
        lost: list[int] = []
        for call, parts in ((pg.recv, from_), (pg.send, to)):
            for number in range(max(map(len, parts))):
                for step in range(1, self.size):
                    peer = (self.rank + step) % self.size
                    if number >= len(parts[peer]):
                        continue
                    view = parts[peer][number]
                    try:
                        work = call([_tensor(view)], peer, self._tag_of(number, view))
                    except RuntimeError:
                        lost.append(peer)
                        continue
                    calls.append(_Post(peer, call == pg.recv and number == 0, work))
        try:
            return self._wait(waiter, calls, lost, limit, arrived)
        except BaseException as error:
            if not isinstance(error, Exception):
                self._say_interrupted(self._doing)  # before the others see the connections close
            self._waiter = None
            waiter.abandon(lambda: self._close_connections(pg))
            raise

    def _wait(
        self,
        waiter: _Waiter,
        calls: list[_Post],
        lost: list[int],
        limit: Limit,
        arrived: Callable[[int], None],
    ) -> Absence:
        """Until the waiter has seen all calls to their end."""
        late: set[int] = set()
        closed: set[int] = set()
        verdict: Absence | None = None
        if lost:
            closed.update(lost)
            verdict = self._agree(Absence(ended=(lost[0],)))
        waiter.begin(calls, limit, broken=bool(lost))
        while True:
            event = waiter.hear(SLICE_S)
            if event is None:
                self._raise_if_failed()
                self._look()
                continue
            peer, error = event
            if peer < 0:
                break
            if not error:
                arrived(peer)
            elif _timed_out(error):
                late.add(peer)
            elif closed:
                closed.add(peer)
            else:
                closed.add(peer)
                # Said to all before waits that are cut short close more connections.
                verdict = self._agree(Absence(ended=(peer,)))
                waiter.go_on()
        if closed:
            return verdict or Absence(ended=tuple(sorted(self._causes(closed))))
        if not late:
            return Absence()
        mine = Absence(late=tuple(sorted(late)), timeout_s=limit.seconds)
        return self.agreed(mine)

    def _close_connections(self, pg: Any) -> None:
        """As gloo does when a wait has timed out: nothing else takes messages back."""
        import torch

        peer = (self.rank + 1) % self.size
        with contextlib.suppress(RuntimeError):
            pg.recv([torch.zeros(1)], peer, NO_TAG).wait(MOMENT)

    def _tag_of(self, number: int, view: memoryview) -> int:
        """gloo matches by tag, and aborts the process where more comes than it has room for: what
        follows a message's first part is told apart by its length."""
        if number == 0:
            return self._tag
        return 1 << 30 | zlib.crc32(b"%d %d %d" % (self._tag, number, view.nbytes)) >> 2

    def _causes(self, closed: set[int]) -> set[int]:
        """Those of the ranks that closed their connections which did not just give up as well."""
        ended = self.ended(closed)
        return closed - (self._on_this_node() - ended) if ended else closed

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
        store = self._link.store
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
        self._link.absent = {*ended, *late}
        return Absence(tuple(ended), tuple(late), timeout_s)

    def _pass_on(self, text: str) -> None:
        store = self._link.store
        if store is None:
            return
        tell_failed(store, text, heard_by=self.rank)
        # With the rank that serves the store go the words.
        ranks = set(range(self.size)) if self._server == self.rank else {self.rank}
        ranks -= self._link.absent
        here = [self.members[rank] for rank in ranks & self._on_this_node()]
        # Where this rank is the cause itself, all that who hears nothing lacks is why.
        most_s = HEARD_S if self._family.by_itself else AGREE_S
        last.append(partial(stay_until_heard, store, ranks, here, most_s))

    def _look(self) -> None:
        link, now = self._link, time.monotonic()
        if now < link.next_look or link.store is None:
            return
        link.next_look = now + LOOK_S
        found = self._said(SLICE_S * 3)
        if found is None:
            link.next_look = now + DEAF_S
        elif found:
            self._finish(self._told(found), Limit.of(self.timeout_s))

    def _said(self, wait_s: float) -> bytes | None:
        """What a rank wrote when the group failed; empty: nothing; None: the store is silent."""
        store = self._link.store
        return soon(lambda: store.get("failed") if store.check(["failed"]) else b"", wait_s)

    def duplicate(self) -> Channel:
        # Messages of another tag: the connections are the same.
        channel = self._twin()
        self._link.tags += 1
        channel._tag = self._link.tags
        return channel

    def answered(self, wait_s: float) -> set[int]:
        return super().answered(wait_s) if self.roll is None else self.roll(wait_s)

    def close(self) -> None:
        super().close()
        if self._waiter is not None:
            self._waiter.close()
        self._link = _Link(None)

    # ---- connecting ----

    def meet(self, meeting: Limit, waiting: Waiting) -> list[Any]:
        """Returns what the ranks said of themselves, by rank, when all have come to the store.

        Args:
            meeting: how long the ranks have for coming.
            waiting: the wait for them, around this.

        Raises:
            TransportError: a rank did not come in time.
        """

        def come() -> tuple[list[int], list[Any]]:
            absent = wait_for_places(self._link.store, self.size, meeting.end, waiting.tell)
            return absent, [] if absent else self._said_by_all(self._link.store, meeting)

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
        store = part_of(self._link.store, what)

        def tell() -> list[Any]:
            deadline = max(meeting.end, time.monotonic() + STORE_WAIT_S)
            in_time(deadline, lambda: store.set(f"rank {self.rank}", text), SILENT)
            absent = wait_for_places(
                store,
                self.size,
                deadline,
                lambda _: self.look_for_the_connecting(),
                self._link.store,
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
        in_time(deadline, lambda: self._link.store.add("heard", 1), SILENT)
        return said

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Around what all ranks refuse alike by what all have said: the process that serves the
        store stays until they have heard it."""
        try:
            yield
        except (InvalidArgument, OutOfMemory):
            if self._server == self.rank:
                last.append(partial(stay_until_all_heard, self._link.store, self._heard))
            raise

    def by_gloo(self, meeting: Limit) -> Channel:
        """Connects each rank with each, which takes a file a rank.

        Raises:
            InvalidArgument: there is no torch here, or this process may not open so many files.
            TransportError: a rank's gloo cannot be reached.
        """
        if find_spec("torch") is None:
            text = "[group] transport 'group' is torch's gloo: install torch, or use 'auto'"
            self.fail(text)
            raise InvalidArgument(text)
        try:
            _allow_files(self.size)
        except InvalidArgument as error:
            self.fail(str(error))
            raise
        self._link.pg = self.guarded(lambda: self._connected(meeting), meeting)
        return self

    def guarded(self, step: Callable[[], T], meeting: Limit) -> T:
        """What `step` returns; what it raises ends the group, with what may be the cause."""
        try:
            return step()
        except (RuntimeError, ValueError, Late) as error:
            if isinstance(error, TransportError):
                self._give_up(str(error))
            if self._server not in (None, self.rank) and self._said(STORE_WAIT_S) is None:
                self._finish(Absence(ended=(self._server,)), meeting)
            reason = next(iter(str(error).splitlines()), "")
            raise TransportError(
                f"[transport] rank {self.rank} could not connect to the other {self.size - 1} "
                f"ranks: {reason}; look at their output, or name the network interface in "
                "GLOO_SOCKET_IFNAME"
            ) from error

    def _connected(self, meeting: Limit) -> Any:
        """gloo's connections; made in a thread, so that the wait for ranks that went may end."""
        from torch.distributed import ProcessGroupGloo

        store, left = self._link.store, max(meeting.left(), STORE_WAIT_S)

        def connect() -> Any:
            # While gloo waits for a key, nothing else gets through its connection to the store.
            # torch before 2.7 makes no other: then the dead are found when gloo's time is up.
            own = store.clone() if hasattr(store, "clone") else store
            return ProcessGroupGloo(own, self.rank, self.size, timedelta(seconds=left))

        try:
            return in_time(
                time.monotonic() + left + STORE_WAIT_S,
                connect,
                "a rank does not answer",
                self.look_for_the_connecting,
            )
        except (RuntimeError, Late) as error:
            if isinstance(error, TransportError):
                raise
            # A roll call, which those hear of that still connect.
            soon(lambda: store.set("roll call", "here"))
            silent = set(range(self.size)) - self.answered(STORE_WAIT_S)
            if silent:
                late = Absence(late=tuple(sorted(silent)), timeout_s=meeting.seconds)
                self._finish(self.agreed(late), meeting)
            raise

    def look_for_the_connecting(self) -> None:
        """At those that connect, every LOOK_S: the group's first calls do not begin without all."""
        due = time.monotonic() >= self._link.next_look
        self._raise_if_failed()
        self._look()
        if not due:
            return
        ended = self.ended(range(self.size))
        if ended:
            self._finish(self.agreed(Absence(ended=tuple(sorted(ended)))), Limit.of(self.timeout_s))
        if soon(lambda: self._link.store.check(["roll call"])):
            raise Late("another rank could not connect to all")

    def _new_waiter(self) -> _Waiter:
        waiter = _Waiter()
        weakref.finalize(self, waiter.close).atexit = False
        return waiter

    def forget(self) -> None:
        if not self._family.forked:
            keep_for_ever(self._link)
        if self._waiter is not None:
            keep_for_ever(self._waiter)
        super().forget()


@dataclass(frozen=True)
class _Post:
    """A message under way.

    Attributes:
        first: the first that comes from the peer in this call.
    """

    peer: int
    first: bool
    work: Any


class _Waiter:
    """A thread that waits for gloo, which cannot be asked whether a message is there: a wait that
    times out closes the connection. So Python sees signals meanwhile, and hears of failures."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[list[_Post], Limit, bool] | None] = queue.SimpleQueue()
        self._news: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        self._may_go_on: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._abandoned = False
        threading.Thread(target=self._run, name="gear-gloo", daemon=True).start()

    def begin(self, calls: list[_Post], limit: Limit, *, broken: bool) -> None:
        """broken: a connection is closed, which others need not be waited for."""
        self._tasks.put((calls, limit, broken))

    def hear(self, wait_s: float) -> tuple[int, str] | None:
        """(peer, "") of a first message; (peer, error); (-1, "") at the end; None: nothing yet."""
        try:
            return self._news.get(timeout=wait_s)
        except queue.Empty:
            return None

    def go_on(self) -> None:
        """After the first error of a closed connection."""
        self._may_go_on.put(None)

    def abandon(self, close: Callable[[], None]) -> None:
        """Takes the messages back with their connections, which ``close`` closes: returns when no
        byte of theirs is touched any more, and ends the thread."""
        self._abandoned = True
        self.go_on()
        close()
        self.close()
        until = time.monotonic() + STORE_WAIT_S
        while time.monotonic() < until:
            event = self.hear(SLICE_S)
            if event is not None and event[0] < 0:
                return

    def close(self) -> None:
        self._tasks.put(None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._wait(*task)
            del task
            self._news.put((-1, ""))

    def _wait(self, calls: list[_Post], limit: Limit, broken: bool) -> None:
        # A wait that times out closes its connection, so each is made once; with the others it is
        # made too, since only then gloo is done with their memory.
        for post in list(calls):
            left = timedelta(seconds=limit.left())
            try:
                post.work.wait(MOMENT if broken or self._abandoned else max(left, MOMENT))
            except Exception as error:  # noqa: BLE001 - who waits for this thread is to hear of it
                self._news.put((post.peer, str(error) or "closed"))
                if not broken and not _timed_out(str(error)):
                    broken = True
                    with contextlib.suppress(queue.Empty):
                        self._may_go_on.get(timeout=STORE_WAIT_S * 2)
                continue
            if post.first and not self._abandoned:
                self._news.put((post.peer, ""))


def _allow_files(size: int) -> None:
    """Raises the limit of this process for open files to what connections to so many ranks take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + 2 * size + SPARE_FILES
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise InvalidArgument(
            f"[group] gloo, which connects the ranks, opens a file for each of {size}: this "
            f"process may open {hard} and needs {needed}: raise it (ulimit -Hn), or install "
            "libfabric on every node, which connects a rank with few others"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _told_at(store: Any) -> str:
    return soon(lambda: told_failed(store), SLICE_S * 3) or ""


def _timed_out(error: str) -> bool:
    return "Timed out" in error or "timeout" in error


def _tensor(view: memoryview) -> Any:
    """The view's bytes as a tensor, without a copy. It keeps no reference to the view."""
    import torch

    if view.readonly:  # torch warns of such memory; what is sent is only read
        address = np.frombuffer(view, np.uint8).ctypes.data
        memory = (ctypes.c_char * view.nbytes).from_address(address)
        return torch.frombuffer(memory, dtype=torch.uint8)
    return torch.frombuffer(view, dtype=torch.uint8)
