"""One rank of test_transport_mpi.py: `mpi_ranks.py SUBJECT`, started by mpirun. Says "passed"."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import sys
import threading
import time

import pytest

from gear import TransportError, _core

WORLD = 0


def content(sender: int, receiver: int, size: int) -> bytes:
    pattern = bytes((sender * 31 + receiver * 7 + i * 13) % 256 for i in range(1009))
    return (pattern * (size // len(pattern) + 1))[:size]


def exchange(transport, size_of) -> None:
    rank, size = transport.rank, transport.size
    sent = [content(rank, r, size_of(rank, r)) for r in range(size)]
    for sizes in ([size_of(r, rank) for r in range(size)], None):
        for r, data in enumerate(transport.exchange(sent, sizes)):
            assert data == content(r, rank, size_of(r, rank)), f"from rank {r}"


def gather(transport, value: int, size: int) -> None:
    want = b"".join(content(r, value, size) for r in range(transport.size))
    assert transport.allgather(content(transport.rank, value, size)) == want


def work(transport, rounds: int = 100) -> None:
    for number in range(rounds):
        gather(transport, number, 32 + number % 3)
        exchange(transport, lambda s, r, n=number: (s * 37 + r * 11 + n * 53) % 900)


def bytes_reach_all_ranks() -> None:
    transport = _core.mpi_transport(WORLD, 60.0)
    assert transport.name == "mpi"
    assert transport.timeout_s == 60.0
    work(transport)
    for size in (0, 1, 4096, 300_000):
        gather(transport, 1, size)
    exchange(transport, lambda s, r: 0)
    exchange(transport, lambda s, r: (8 << 20) - 3 * s - r)
    exchange(transport, lambda s, r: 8 << 20 if (s, r) == (0, 1) else 1)


def long_entries_are_cut() -> None:
    transport = _core.mpi_transport(WORLD, 60.0, message_bytes=1000)
    exchange(transport, lambda s, r: (0, 1, 999, 1000, 1001, 2000, 100_001)[(s + r) % 7])
    gather(transport, 1, 12_345)


def duplicates_are_independent() -> None:
    transport = _core.mpi_transport(WORLD, 60.0)
    twin = transport.duplicate()
    failures: list[Exception] = []

    def second() -> None:
        try:
            work(twin, 200)
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    thread = threading.Thread(target=second)
    thread.start()
    if transport.rank == 0:  # the threads of the ranks meet in no common order
        thread.join()
    work(transport, 200)
    thread.join()
    assert not failures, failures
    del transport
    work(twin.duplicate(), 3)


def a_late_rank_is_named() -> None:
    transport = _core.mpi_transport(WORLD, 1.0)
    late = transport.size - 1
    if transport.rank == late:
        time.sleep(3)
        return
    with pytest.raises(TransportError, match=f"rank {late} did not take part in allgather within"):
        transport.allgather(b"x")
    with pytest.raises(TransportError, match=f"rank {late} did not take part in allgather within"):
        transport.allgather(b"x")  # at once, in the same words


def other_calls_are_refused() -> None:
    transport = _core.mpi_transport(WORLD, 1.0)
    entries = [b"y" * 8] * transport.size, [8] * transport.size
    call = transport.allgather if transport.rank == 0 else transport.exchange
    with pytest.raises(TransportError, match=r"is in a|did not take part"):
        call(*((b"x" * 8,) if transport.rank == 0 else entries))


def other_sizes_are_refused() -> None:
    transport = _core.mpi_transport(WORLD, 1.0)
    with pytest.raises(TransportError, match=r"both must know the same size|TRUNCATE"):
        transport.allgather(b"x" * (9 if transport.rank == 0 else 8))


def gather_after(transport, to: list[bytes], from_bytes: list[int]) -> None:
    """What is short has been sent, whoever takes it: its sender hears of a failure in the next."""
    transport.exchange(to, from_bytes)
    gather_on(transport)


def longer_messages_overwrite_nothing() -> None:
    """What comes is looked at before it is taken: here it is longer than the memory for it."""
    for sent, expected, said in [
        (100_000, 64, "100000"),
        (5 << 20, 64, str(5 << 20)),
        (64, 5 << 20, "64"),
        ((5 << 20) - 1, 5 << 20, str((5 << 20) - 1)),
    ]:
        transport = _core.mpi_transport(WORLD, 60.0)
        words = re.escape(f"rank 1 gives {said} bytes, rank 0 expects {expected} of it")
        to, from_bytes = [b"", b"x" * 64], [0, expected]
        if transport.rank == 1:
            to, from_bytes = [b"y" * sent, b""], [64, 0]
        with pytest.raises(TransportError, match=words):
            gather_after(transport, to, from_bytes)
        kept = [bytes([number % 256]) * 64 for number in range(10_000)]
        assert all(one == bytes([number % 256]) * 64 for number, one in enumerate(kept))


def state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def until_stopped(pid: int) -> None:
    deadline = time.monotonic() + 60
    while state_of(pid) != "T":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def stop_myself(*_) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


LATE = 64 << 20  # bytes: whoever frees so many gives them back to the system


def what_comes_late_touches_nothing() -> None:
    """Rank 1 stops itself in the middle of a call, when it has announced a message, which rank 0
    then begins to receive: MPI does not take that back. It comes after rank 0 has given up."""
    other = _core.mpi_transport(WORLD, 60.0)
    transport = _core.mpi_transport(WORLD, 2.0 if other.rank == 0 else 60.0)
    peer = int(other.allgather(b"%16d" % os.getpid())[16:])
    mine = bytearray()
    if other.rank == 0:
        until_stopped(peer)
        with pytest.raises(TransportError, match="rank 1 did not take part in exchange within"):
            transport.exchange([b"", b""], [0, LATE])
        mine = bytearray(LATE)
        os.kill(peer, signal.SIGCONT)
    else:
        signal.signal(signal.SIGALRM, stop_myself)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with contextlib.suppress(TransportError):  # if it hears that in time
            transport.exchange([b"\xee" * LATE, b""], [0, 0])
    for _ in range(200):
        other.allgather(b"b")
    assert mine.count(0xEE) == 0


def exchange_on(transport, sent: bytes) -> None:
    while True:
        came = transport.exchange([sent, b""] if transport.rank == 1 else [b"", b""])
        if transport.rank == 0:
            assert came[1] == sent


def words_amid_a_cut_entry() -> None:
    """Rank 1 gives up in the middle of an entry, whose next pieces are shorter than its words: rank
    0 reads these, and none of its bytes is theirs."""
    failure = _core.Failure()
    transport = _core.mpi_transport(WORLD, 60.0, message_bytes=1000, failure=failure)
    transport.allgather(b"x")
    words = "[transport] rank 1 ended with ValueError: " + "boom" * 200
    if transport.rank == 1:
        threading.Timer(0.5, failure.tell, [words]).start()
    with pytest.raises(TransportError) as caught:
        exchange_on(transport, b"\xee" * (1 << 20))
    assert str(caught.value) == words


def the_roll_is_called() -> None:
    """By all, and after a failure by those that are left."""
    transport = _core.mpi_transport(WORLD, 60.0)
    assert transport.present(60.0) == [0, 1, 2]
    transport.timeout_s = 1.0
    if transport.rank == 1:
        time.sleep(4.0)
        return
    with pytest.raises(TransportError, match="rank 1 did not take part"):
        transport.allgather(b"x")
    assert transport.present(1.5) == [0, 2]


def send_after(transport) -> None:
    transport.allgather(b"x")
    transport.exchange([b"", b"x" * 2**20], [0, 0])


def who_only_sends_hears_of_failures() -> None:
    """Of what rank 1 tells before it does something else for long; it is never in that call."""
    failure = _core.Failure()
    transport = _core.mpi_transport(WORLD, 60.0, failure=failure)
    words = "[transport] rank 1 ended with ValueError: boom"
    if transport.rank == 1:
        transport.allgather(b"x")
        failure.tell(words)
    else:
        with pytest.raises(TransportError, match=re.escape(words)):
            send_after(transport)


def gather_on(transport) -> None:
    while True:
        transport.allgather(b"x")


def interrupts_are_heard() -> None:
    """Ctrl-C in a call of rank 0. Rank 1 waits in the same, rank 2 comes later. What rank 0 had
    sent for that call is there: they hear of it in that one or the next, from rank 0 or from rank
    1, which gave up because of it, and in the same words."""
    transport = _core.mpi_transport(WORLD, 60.0)
    transport.allgather(b"x")
    if transport.rank == 0:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            transport.allgather(b"x")
        with pytest.raises(TransportError, match=r"rank 0 \(pid \d+\) was interrupted in allg"):
            transport.allgather(b"x")
        return
    if transport.rank == 2:
        time.sleep(1.5)
    said = r"rank 0 \(pid \d+\) was interrupted in allgather"
    with pytest.raises(TransportError, match=said):
        gather_on(transport)


def interrupts_while_it_is_made() -> None:
    """Ctrl-C while rank 0 waits for the others to make a transport, too."""
    late = _core.mpi_transport(WORLD, 60.0)
    if late.rank == 0:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            _core.mpi_transport(WORLD, 60.0)
    # The others do not make it: MPI is not finalised, which would wait for that.


def forks_may_end() -> None:
    """A forked child has no part in MPI, and does not finalise it."""
    transport = _core.mpi_transport(WORLD, 60.0)
    pid = os.fork()
    if pid == 0:
        ctypes.pythonapi.Py_Exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    work(transport, 3)


def arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="0 s: more than 0"):
        _core.mpi_transport(WORLD, 0.0)
    with pytest.raises(ValueError, match="messages of 999 bytes: 1000 to 2"):
        _core.mpi_transport(WORLD, 1.0, message_bytes=999)


def with_mpi4py(level: str) -> None:
    import mpi4py

    mpi4py.rc.thread_level = level
    from mpi4py import MPI

    half = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2, MPI.COMM_WORLD.rank)
    if level == "funneled":
        with pytest.raises(TransportError, match="initialise it with MPI_THREAD_MULTIPLE"):
            _core.mpi_transport(half.py2f(), 60.0)
        return
    transport = _core.mpi_transport(half.py2f(), 60.0)
    assert (transport.rank, transport.size) == (half.rank, half.size)
    twin = transport.duplicate()
    thread = threading.Thread(target=work, args=(twin,))
    thread.start()
    work(transport)
    thread.join()
    half.Barrier()


if __name__ == "__main__":
    subject, *arguments = sys.argv[1:]
    globals()[subject](*arguments)
    print("passed", flush=True)
    time.sleep(float(os.environ.get("LINGER_S", "0")))
