"""No code of GEAR waits in a call of MPI, which hears of no time-out and of no Ctrl-C: what is
called either returns at once, or stands here with the reason why it may wait."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CALL = re.compile(r"\b(MPI_[A-Z][a-z]\w*)\(")

# Return at once: they begin something, look at something, or are this process's own affair.
RETURN = set(
    """MPI_Comm_f2c MPI_Comm_get_attr MPI_Comm_get_name MPI_Comm_group MPI_Comm_idup MPI_Comm_rank
    MPI_Comm_set_errhandler MPI_Comm_set_name MPI_Comm_size MPI_Comm_test_inter MPI_Error_string
    MPI_Finalized MPI_Get_elements_x MPI_Get_library_version MPI_Group_free
    MPI_Group_incl MPI_Iallgather MPI_Iallreduce MPI_Ibcast MPI_Improbe MPI_Imrecv MPI_Initialized
    MPI_Isend MPI_Query_thread MPI_Request_free MPI_Test MPI_Testall MPI_Testsome
    MPI_Type_commit MPI_Type_contiguous MPI_Type_create_struct MPI_Type_free""".split()
)
WIRE = "process_group/src/over_mpi/mpi_wire.cpp"
MAY_WAIT = {
    ("csrc/mpi/runtime.cpp", "MPI_Init_thread"): "no other rank can be told before; the "
    "launcher ends those that wait for one that has failed",
    ("csrc/mpi/runtime.cpp", "MPI_Finalize"): "at the end of a process in which nothing "
    "has failed: never_finalise()",
    ("csrc/transport/mpi/mpi_frames.cpp", "MPI_Comm_free"): "of a communicator that has "
    "not failed: MPI lets each rank go on",
    (WIRE, "MPI_Comm_free"): "the same",
    (
        WIRE,
        "MPI_Comm_create_group",
    ): "has no other form: a thread makes it, which is waited for with the group's time-out",
    (
        WIRE,
        "MPI_Mrecv",
    ): "the message has come, and is so short that MPI has sent all of it at once",
}
# Of mpi4py, by method.
PYTHON_RETURN = {"Iallgather", "Iallgatherv", "Ibarrier", "Idup"}
PYTHON_WAITS = set(
    """Wait Waitall Waitany Waitsome Send Ssend Bsend Rsend Recv Sendrecv Probe Mprobe Barrier Bcast
    Gather Gatherv Scatter Scatterv Allgather Allgatherv Alltoall Alltoallv Reduce Allreduce Scan
    Dup Clone Split Split_type Create Create_group Free Disconnect Cancel""".split()
)
PYTHON_MAY_WAIT = {
    ("gear/distributed/channels/mpi.py", "Finalize"): "when all ranks have come to their end",
    ("gear/distributed/channels/mpi.py", "Init_thread"): "no other rank can be told before",
}


def sources() -> Iterator[tuple[str, str]]:
    for folder in ("csrc/mpi", "csrc/transport/mpi", "process_group/src"):
        for path in sorted((REPOSITORY / folder).rglob("*")):
            if path.suffix in {".h", ".cpp"}:
                yield path.relative_to(REPOSITORY).as_posix(), path.read_text()


def test_what_the_core_calls_of_mpi_returns_at_once_or_is_listed() -> None:
    called = {(name, call) for name, text in sources() for call in CALL.findall(text)}
    assert len(called) > 30
    assert {pair for pair in called if pair[1] not in RETURN} == set(MAY_WAIT)


def test_what_is_listed_of_mpi_is_called() -> None:
    assert {call for _, text in sources() for call in CALL.findall(text)} >= RETURN


def test_what_python_calls_of_mpi4py_returns_at_once_or_is_listed() -> None:
    named = set()
    for path in sorted((REPOSITORY / "gear").rglob("*.py")):
        text = path.read_text()
        if "mpi4py" in text:
            named |= {
                (path.relative_to(REPOSITORY).as_posix(), node.func.attr)
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            }
    assert {method for _, method in named} >= PYTHON_RETURN
    waits = PYTHON_WAITS | {method for _, method in PYTHON_MAY_WAIT}
    assert {pair for pair in named if pair[1] in waits} == set(PYTHON_MAY_WAIT)
