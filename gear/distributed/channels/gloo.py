"""Bytes over gloo, between processes that meet at a store of torch.distributed.

The connections are GEAR's own: a process group that a program uses for training, nccl or gloo, is
asked who its ranks are and no more, and none is made that torch.distributed would know of.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import resource
import threading
import time
import weakref
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import numpy as np

from gear.distributed.calls import STORE_WAIT_S, Late, in_time
from gear.distributed.channels.base import Absence, Channel
from gear.distributed.channels.messages import Parts
from gear.distributed.channels.store_ranks import StoreRanks
from gear.distributed.process_life import keep_for_ever
from gear.distributed.timeout import SLICE_S, Limit
from gear.errors import InvalidArgument, TransportError

SPARE_FILES = 64  # for what a program opens beside
MOMENT = timedelta(milliseconds=1)
NO_TAG = (1 << 31) - 1  # of no message
NO_TORCH = "[group] transport 'group' is torch's gloo: install torch, or use 'auto'"


@dataclass
class _Link:
    """What a channel and its duplicates have in common; the connections end with the last one."""

    pg: Any = None
    tags: int = 0  # given out


class GlooChannel(StoreRanks):
    """Bytes over a gloo process group, as one message from each rank to each, once `by_gloo` has
    connected them."""

    kind = "gloo"

    def __init__(
        self, store: Any, rank: int, size: int, timeout_s: float, *, server: int | None
    ) -> None:
        super().__init__(store, rank, size, timeout_s, server=server)
        self._link = _Link()
        self._tag = 0

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
        return closed - (self._on_this_host() - ended) if ended else closed

    def duplicate(self) -> Channel:
        # Messages of another tag: the connections are the same.
        channel = self._twin()
        self._link.tags += 1
        channel._tag = self._link.tags
        return channel

    def close(self) -> None:
        super().close()
        if self._waiter is not None:
            self._waiter.close()
        self._link = _Link()

    def by_gloo(self, meeting: Limit) -> Channel:
        """Connects each rank with each, which takes a file a rank.

        Raises:
            InvalidArgument: there is no torch here, or this process may not open so many files.
            TransportError: a rank's gloo cannot be reached.
        """
        if find_spec("torch") is None:
            self.fail(NO_TORCH)
            raise InvalidArgument(NO_TORCH)
        try:
            _allow_files(self.size)
        except InvalidArgument as error:
            self.fail(str(error))
            raise
        self._link.pg = self.guarded(lambda: self._connected(meeting), meeting)
        self.say_connected()
        return self

    def _connected(self, meeting: Limit) -> Any:
        """gloo's connections; made in a thread, so that the wait for ranks that went may end."""
        from torch.distributed import ProcessGroupGloo

        store, left = self._store, max(meeting.left(), STORE_WAIT_S)

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
            self.name_the_silent(meeting)
            raise

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
