"""Bytes over mpi4py."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gear.distributed import process_life
from gear.distributed.channels.base import Absence, Channel
from gear.distributed.channels.messages import MessageChannel, Parts
from gear.distributed.timeout import LOOK_S, Limit
from gear.errors import InvalidArgument

Pieces = deque[tuple[int, memoryview]]  # with the number of the part that each is of

MOST_BYTES = 1 << 30  # of one message: MPI counts with a C int
BYTES, FAREWELL = 0, 1  # tags
MOST_WORDS = 1000  # what every MPI sends at once: the teller may be gone when they are heard
WORDS_S = 1.0  # within which they come
# The name of MPI.COMM_SELF in a process that does not finalise MPI: a call has ended without some
# rank, for which MPI_Finalize would wait. The core's libraries go by it too.
NOT_FINALISED = "MPI_COMM_SELF, not finalised"

# What has not ended of failed calls, with its bytes: MPI takes nothing back that is matched, and
# may read and write there as long as the process lives.
_unended: list[Any] = []


def initialise_mpi(timeout_s: float) -> None:
    """Initialises MPI by importing mpi4py, and has it finalised at exit.

    MPI_Finalize waits for all ranks, without end for one that hangs. So it is called when all have
    come to their end within `timeout_s`, and not after an error in this process: a launcher takes
    that for the failure it is. Where mpi4py is imported already, it finalises MPI itself.
    """
    import mpi4py

    if "mpi4py.MPI" not in sys.modules and mpi4py.rc.finalize is None:
        mpi4py.rc.finalize = False
        process_life.last.append(partial(_finalise, timeout_s))
    from mpi4py import MPI

    if not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_MULTIPLE)


def _finalise(timeout_s: float) -> None:
    from mpi4py import MPI

    failed = getattr(sys, "last_value", None) is not None
    if failed or MPI.Is_finalized() or MPI.COMM_SELF.Get_name() == NOT_FINALISED:
        return
    barrier = MPI.COMM_WORLD.Ibarrier()
    deadline = time.monotonic() + timeout_s
    while not barrier.Test():
        if time.monotonic() >= deadline:
            return
        time.sleep(0.001)
    MPI.Finalize()


@dataclass(frozen=True)
class _UnderWay:
    """A message that MPI is sending, or receiving.

    Attributes:
        room: what it is received into, and copied from when it has ended; None: it is sent.
        is_first: the first part of what `peer` sends, which says what the others are of.
    """

    peer: int
    request: Any
    room: bytearray | None = None
    view: memoryview | None = None
    is_first: bool = False


class MpiChannel(MessageChannel):
    """Bytes over a duplicate of an mpi4py communicator, as one message from each rank to each.

    Raises:
        InvalidArgument: MPI was initialised for calls from one thread only.
        TransportError: a rank did not take part within `timeout_s`.
    """

    kind = "mpi4py"

    def __init__(self, communicator: Any, timeout_s: float) -> None:
        from mpi4py import MPI

        super().__init__(communicator.Get_rank(), communicator.Get_size(), timeout_s)
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise InvalidArgument(
                "[group] MPI was initialised without MPI_THREAD_MULTIPLE, which a loader's thread "
                "needs beside yours: leave mpi4py.rc.threads and MPI4PY_RC_THREAD_LEVEL alone, or "
                "call MPI_Init_thread with it"
            )
        self._communicator = self._twin_of(communicator)
        self._roll = self._twin_of(communicator)

    def _move(
        self, to: Parts, from_: Parts, limit: Limit, arrived: Callable[[int], None]
    ) -> Absence:
        return self._carry(self._communicator, to, from_, limit, arrived)

    def _carry(
        self,
        communicator: Any,
        to: Parts,
        from_: Parts,
        limit: Limit,
        arrived: Callable[[int], None] | None,
    ) -> Absence:
        """`_move`; without `arrived`, a call after a failure: nothing ends it but the time."""
        expected = {peer: _numbered(from_[peer]) for peer in range(self.size) if peer != self.rank}
        under_way = self._sent(communicator, to)
        begin = time.monotonic()
        next_look = begin + LOOK_S
        ended: set[int] = set()
        try:
            while True:
                self._begin(communicator, expected, under_way)
                still = []
                for one in under_way:
                    if not one.request.Test():
                        still.append(one)
                        continue
                    if one.view is not None and one.room is not None:
                        one.view[:] = one.room
                    if arrived and one.is_first:
                        arrived(one.peer)
                under_way = still
                if not under_way and not any(expected.values()):
                    return Absence()
                now = time.monotonic()
                if now >= limit.end:
                    break
                if arrived:
                    self._raise_if_failed()
                if arrived and now >= next_look:
                    ended = self.ended(_absent(under_way, expected))
                    self._look()  # after that: who ended because of another has told it before
                    if ended:
                        break
                    next_look = now + LOOK_S
                if now - begin > 0.001:
                    time.sleep(min(0.0005, limit.end - now))
        finally:
            late = _absent(under_way, expected)
            if late:
                _unended.extend(under_way)
                _leave_unfinalised()
        if ended:
            return Absence(ended=tuple(sorted(ended)))
        return Absence(late=tuple(sorted(late)))

    def _sent(self, communicator: Any, to: Parts) -> list[_UnderWay]:
        """Begins to send copies: a send that nobody receives cannot be taken back."""
        sends = []
        for step in range(1, self.size):
            peer = (self.rank + step) % self.size
            for view in to[peer]:
                for piece in _pieces(memoryview(bytes(view))):
                    request = communicator.Isend([piece, piece.nbytes, _byte()], peer, BYTES)
                    sends.append(_UnderWay(peer, request))
        return sends

    def _begin(
        self, communicator: Any, expected: Mapping[int, Pieces], under_way: list[_UnderWay]
    ) -> None:
        """Begins to receive what has come, into rooms of its length: MPI may write a longer message
        than its room past the end of that. What follows a first part waits until that was looked
        at."""
        from mpi4py import MPI

        status = MPI.Status()
        unread = {one.peer for one in under_way if one.is_first}
        for peer, pieces in expected.items():
            while pieces and peer not in unread:
                message = communicator.Improbe(peer, BYTES, status)
                if message is None:
                    break
                number, view = pieces.popleft()
                room = bytearray(status.Get_count(_byte()))
                if len(room) != view.nbytes:
                    self._give_up(
                        f"[transport] {self._who(peer)} sends {len(room)} bytes where "
                        f"{self._who(self.rank)} expects {view.nbytes}: ranks of one group must "
                        "run the same version of GEAR"
                    )
                request = message.Irecv([room, len(room), _byte()])
                under_way.append(_UnderWay(peer, request, room, view, number == 0))
                if number == 0:
                    unread.add(peer)

    def _pass_on(self, text: str) -> None:
        from mpi4py import MPI

        if MPI.Is_finalized():
            return
        words = text.encode()[:MOST_WORDS]
        for peer in set(range(self.size)) - {self.rank}:
            _unended.append(self._roll.Isend([words, len(words), _byte()], peer, FAREWELL))

    def _look(self) -> None:
        from mpi4py import MPI

        status = MPI.Status()
        message = self._roll.Improbe(MPI.ANY_SOURCE, FAREWELL, status)
        if message is None:
            return
        words = bytearray(status.Get_count(_byte()))
        request = message.Irecv([words, len(words), _byte()])
        limit = Limit.of(WORDS_S)
        while not request.Test():
            if not limit.left():
                _unended.append(request)
                who = self._who(status.Get_source())
                self._give_up(f"[transport] {who} has given up: its own output says why")
            time.sleep(0.0005)
        self._give_up(words.decode(errors="replace"))

    def duplicate(self) -> Channel:
        channel = self._twin()
        channel._communicator = self._twin_of(self._communicator)
        return channel

    def answered(self, wait_s: float) -> set[int]:
        mine, theirs = memoryview(b"?"), memoryview(bytearray(self.size))
        parts = [[theirs[peer : peer + 1]] for peer in range(self.size)]
        absence = self._carry(self._roll, [[mine]] * self.size, parts, Limit.of(wait_s), None)
        return set(range(self.size)) - set(absence.late)

    def library(self) -> str:
        """Maker and version of the MPI that mpi4py uses."""
        from mpi4py import MPI

        return str(MPI.Get_library_version())

    def fortran_handle(self) -> int:
        """A communicator of its own between the same ranks. Collective."""
        return int(self._twin_of(self._communicator).py2f())

    def _twin_of(self, communicator: Any) -> Any:
        twin, request = communicator.Idup()
        deadline = time.monotonic() + self.timeout_s
        try:
            while not request.Test():
                if time.monotonic() >= deadline:
                    others = tuple(rank for rank in range(self.size) if rank != self.rank)
                    raise self.failure_of(Absence(late=others, some=True), self.timeout_s)
                self._raise_if_failed()
                time.sleep(0.0005)
        except BaseException:
            _unended.append((twin, request))
            _leave_unfinalised()
            raise
        return twin


def _absent(under_way: list[_UnderWay], expected: Mapping[int, Pieces]) -> set[int]:
    return {one.peer for one in under_way} | {peer for peer, pieces in expected.items() if pieces}


def _leave_unfinalised() -> None:
    from mpi4py import MPI

    MPI.COMM_SELF.Set_name(NOT_FINALISED)


def _numbered(parts: Sequence[memoryview]) -> Pieces:
    return deque((number, piece) for number, view in enumerate(parts) for piece in _pieces(view))


def _pieces(view: memoryview) -> Iterator[memoryview]:
    for start in range(0, view.nbytes, MOST_BYTES):
        yield view[start : start + MOST_BYTES]


def _byte() -> Any:
    from mpi4py import MPI

    return MPI.BYTE
