"""Bytes over mpi4py."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from gear.distributed import process_life
from gear.distributed.channels.base import Absence, Channel, Parts
from gear.distributed.timeout import LOOK_S, Limit
from gear.errors import InvalidArgument

MOST_BYTES = 1 << 30  # of one message: MPI counts with a C int
BYTES, FAREWELL = 0, 1  # tags

# Sends of failed calls, with their bytes: MPI may read these as long as the process lives.
_unsent: list[Any] = []
_absent: set[int] = set()  # ranks that a call ended without, in this process's groups


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

    failed = _absent or getattr(sys, "last_value", None) is not None
    if failed or MPI.Is_finalized():
        return
    barrier = MPI.COMM_WORLD.Ibarrier()
    deadline = time.monotonic() + timeout_s
    while not barrier.Test():
        if time.monotonic() >= deadline:
            return
        time.sleep(0.001)
    MPI.Finalize()


class MpiChannel(Channel):
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
        receives = self._post(communicator.Irecv, from_)
        # Of copies: a send that nobody receives cannot be taken back.
        copies = [[memoryview(bytes(view)) for view in views] for views in to]
        waiting = receives + self._post(communicator.Isend, copies)
        firsts = {id(request): peer for peer, part, request in receives if part == 0}
        begin = time.monotonic()
        next_look = begin + LOOK_S
        ended: set[int] = set()
        try:
            while True:
                still = []
                for one in waiting:
                    if not one[2].Test():
                        still.append(one)
                    elif arrived and id(one[2]) in firsts:
                        arrived(firsts[id(one[2])])
                waiting = still
                now = time.monotonic()
                if not waiting:
                    return Absence()
                if now >= limit.end:
                    break
                if arrived:
                    self._raise_if_failed()
                if arrived and now >= next_look:
                    ended = self.ended({peer for peer, _, _ in waiting})
                    self._look()  # after that: who ended because of another has told it before
                    if ended:
                        break
                    next_look = now + LOOK_S
                if now - begin > 0.001:
                    time.sleep(min(0.0005, limit.end - now))
        finally:
            receiving = {id(request) for _, _, request in receives}
            for _, _, request in waiting:
                if id(request) not in receiving:
                    _unsent.append(request)
                elif not request.Test():
                    request.Cancel()
                    request.Wait()
            _absent.update(ended or {peer for peer, _, _ in waiting})
        if ended:
            return Absence(ended=tuple(sorted(ended)))
        return Absence(late=tuple(sorted({peer for peer, _, _ in waiting})))

    def _post(self, call: Callable[..., Any], parts: Parts) -> list[tuple[int, int, Any]]:
        """(peer, number of the part, request); a part in several pieces ends with its last."""
        requests = []
        for step in range(1, self.size):
            peer = (self.rank + step) % self.size
            for number, view in enumerate(parts[peer]):
                for piece in _pieces(view):
                    requests.append(
                        (peer, number, call([piece, piece.nbytes, _byte()], peer, BYTES))
                    )
        return requests

    def _pass_on(self, text: str) -> None:
        from mpi4py import MPI

        if MPI.Is_finalized():
            return
        words = text.encode()[:4096]
        for peer in set(range(self.size)) - {self.rank}:
            _unsent.append(self._roll.Isend([words, len(words), _byte()], peer, FAREWELL))

    def _look(self) -> None:
        from mpi4py import MPI

        status = MPI.Status()
        if self._roll.Iprobe(MPI.ANY_SOURCE, FAREWELL, status):
            words = bytearray(status.Get_count(_byte()))
            source = status.Get_source()
            self._roll.Recv([words, len(words), _byte()], source, FAREWELL)
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
        while not request.Test():
            if time.monotonic() >= deadline:
                others = tuple(rank for rank in range(self.size) if rank != self.rank)
                raise self.failure_of(Absence(late=others, some=True), self.timeout_s)
            self._raise_if_failed()
            time.sleep(0.0005)
        return twin


def _pieces(view: memoryview) -> Iterator[memoryview]:
    for start in range(0, view.nbytes, MOST_BYTES):
        yield view[start : start + MOST_BYTES]


def _byte() -> Any:
    from mpi4py import MPI

    return MPI.BYTE
