"""Bytes over mpi4py."""

from __future__ import annotations

import atexit
import copy
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from gear.distributed.channel import Absence, Channel, Views
from gear.errors import InvalidArgument, TransportError

MOST_BYTES = 1 << 30  # of one message: MPI counts with a C int
LOOK_S = 0.5  # between two looks at the processes of this node

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
        atexit.register(_finalise, timeout_s)
    from mpi4py import MPI

    if not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_MULTIPLE)


def _finalise(timeout_s: float) -> None:
    from mpi4py import MPI

    failed = _absent or isinstance(getattr(sys, "last_value", None), TransportError)
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

    def _move(self, to: Views, from_: Views, deadline: float) -> Absence:
        return self._exchange(self._communicator, to, from_, deadline, look=True)

    def _exchange(
        self, communicator: Any, to: Views, from_: Views, deadline: float, *, look: bool
    ) -> Absence:
        receives = self._start(communicator.Irecv, from_)
        # Of copies: a send that nobody receives cannot be taken back.
        sends = self._start(communicator.Isend, [memoryview(bytes(view)) for view in to])
        waiting = receives + sends
        begin = time.monotonic()
        next_look = begin + LOOK_S
        ended: set[int] = set()
        while True:
            waiting = [(peer, request) for peer, request in waiting if not request.Test()]
            now = time.monotonic()
            if not waiting:
                return Absence()
            if now >= deadline:
                break
            if look and now >= next_look:
                ended = self.ended({peer for peer, _ in waiting})
                if ended:
                    break
                next_look = now + LOOK_S
            if now - begin > 0.001:
                time.sleep(min(0.0005, deadline - now))
        receiving = {id(request) for _, request in receives}
        for _, request in waiting:
            if id(request) in receiving:
                request.Cancel()
                request.Wait()
            else:
                _unsent.append(request)
        _absent.update(ended or {peer for peer, _ in waiting})
        if ended:
            return Absence(ended=tuple(sorted(ended)))
        return Absence(late=tuple(sorted({peer for peer, _ in waiting})))

    def _start(self, call: Callable[..., Any], views: Views) -> list[tuple[int, Any]]:
        requests = []
        for step in range(1, self.size):
            peer = (self.rank + step) % self.size
            for piece in _pieces(views[peer]):
                requests.append((peer, call([piece, piece.nbytes, _byte()], peer)))
        return requests

    def duplicate(self) -> Channel:
        channel = copy.copy(self)
        channel._communicator = self._twin_of(self._communicator)
        return channel

    def answered(self, wait_s: float) -> set[int]:
        mine, theirs = memoryview(b"?"), memoryview(bytearray(self.size))
        parts = [theirs[peer : peer + 1] for peer in range(self.size)]
        deadline = time.monotonic() + wait_s
        absence = self._exchange(self._roll, [mine] * self.size, parts, deadline, look=False)
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
                raise self.failure(Absence(late=others, some=True), self.timeout_s)
            time.sleep(0.0005)
        return twin


def _pieces(view: memoryview) -> Iterator[memoryview]:
    for start in range(0, view.nbytes, MOST_BYTES):
        yield view[start : start + MOST_BYTES]


def _byte() -> Any:
    from mpi4py import MPI

    return MPI.BYTE
