"""Ranks of MPI, by mpi4py."""

from __future__ import annotations

import itertools
import sys
import time
from array import array
from functools import partial
from typing import Any

from gear import _core
from gear.distributed import process_life
from gear.distributed.channels.framework import FrameworkRanks, done_by
from gear.distributed.timeout import Limit
from gear.errors import InvalidArgument

# The name of MPI.COMM_SELF in a process that does not finalise MPI: a call has ended without some
# rank, for which MPI_Finalize would wait. The core's libraries go by it too.
NOT_FINALISED = "MPI_COMM_SELF, not finalised"

# Calls that have not ended, with what MPI may still read and write as long as the process lives.
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


class MpiRanks(FrameworkRanks):
    """Those of an mpi4py communicator, which is duplicated. Collective.

    Raises:
        InvalidArgument: MPI was initialised for calls from one thread only.
        TransportError: a rank did not take part within `timeout_s`.
    """

    name = "the MPI communicator"

    def __init__(self, communicator: Any, timeout_s: float) -> None:
        from mpi4py import MPI

        super().__init__(communicator.Get_rank(), communicator.Get_size(), timeout_s)
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise InvalidArgument(
                "[group] MPI was initialised without MPI_THREAD_MULTIPLE, which a loader's thread "
                "needs beside yours: leave mpi4py.rc.threads and MPI4PY_RC_THREAD_LEVEL alone, or "
                "call MPI_Init_thread with it"
            )
        self._communicator = self.guarded(lambda: self._twin_of(communicator), Limit.of(timeout_s))

    def fortran_handle(self) -> int:
        """That of the communicator; the core makes its own of it."""
        return int(self._communicator.py2f())

    def _twin_of(self, communicator: Any) -> Any:
        twin, request = communicator.Idup()
        self._end(request, Limit.of(self.timeout_s), twin)
        return twin

    def _gather(self, text: bytes, limit: Limit) -> list[bytes]:
        from mpi4py import MPI

        own, sizes = array("q", [len(text)]), array("q", [0] * self.size)
        mine = [own, 1, MPI.INT64_T]
        request = self._communicator.Iallgather(mine, [sizes, 1, MPI.INT64_T])
        self._end(request, limit, (own, sizes))
        starts = [0, *itertools.accumulate(sizes)]
        room = bytearray(starts[-1])
        request = self._communicator.Iallgatherv(
            [text, len(text), MPI.BYTE], [room, list(sizes), starts[:-1], MPI.BYTE]
        )
        self._end(request, limit, (text, room))
        return [bytes(room[begin:end]) for begin, end in itertools.pairwise(starts)]

    def _end(self, request: Any, limit: Limit, rooms: Any) -> None:
        """Waits for it. What does not end keeps its rooms, and MPI from being finalised."""
        try:
            done_by(limit, request.Test, self.look_for_the_connecting)
        except BaseException:
            _unended.append((request, rooms))
            _leave_unfinalised()
            raise


def _leave_unfinalised() -> None:
    from mpi4py import MPI

    MPI.COMM_SELF.Set_name(NOT_FINALISED)


def is_of_the_core() -> bool:
    """Whether mpi4py and GEAR use one MPI: handles mean nothing to that of another maker."""
    from mpi4py import MPI

    built = str(_core.build_info()["mpi"] or "")
    return bool(built) and built.split()[0] == MPI.Get_library_version().split()[0]
