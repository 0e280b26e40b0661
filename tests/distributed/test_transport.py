"""_core.Transport: ranks that are threads, and ranks over a channel that Python brings."""

from __future__ import annotations

import gc
import threading
import uuid
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from gear import TransportError, _core


def on_all(transports, call):
    """call(transport) in a thread per rank; what each returned or raised, by rank."""

    def attempt(transport):
        try:
            return call(transport)
        except Exception as error:  # noqa: BLE001
            return error

    with ThreadPoolExecutor(len(transports)) as pool:
        return list(pool.map(attempt, transports))


class Channel:
    """What a framework's adapter gives group_transport, over a loopback transport."""

    def __init__(self, transport):
        self.transport = transport

    def allgather(self, mine, all):
        all[:] = self.transport.allgather(bytes(mine))

    def exchange_bytes(self, to, sizes):
        return self.transport.exchange([bytes(entry) for entry in to], sizes)

    def duplicate(self):
        return Channel(self.transport.duplicate())


def loopback(size, timeout_s=60.0):
    return _core.loopback_transports(size, timeout_s)


def group(size, timeout_s=60.0):
    return [
        _core.group_transport(Channel(t), t.rank, t.size, t.timeout_s)
        for t in loopback(size, timeout_s)
    ]


def shared_memory(size, timeout_s=60.0):
    name = f"test-{uuid.uuid4().hex}"
    with ThreadPoolExecutor(size) as pool:
        ranks = pool.map(
            lambda r: _core.shared_memory_transport(name, r, size, timeout_s), range(size)
        )
        return list(ranks)


def fabric(size, timeout_s=60.0):
    """Over this machine's network; messages go by a loopback transport."""
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(_core.fabric_transport, loopback(size, timeout_s)))


def emulated(size, timeout_s=60.0):
    return [
        _core.emulated_transport(
            inner, _core.Traffic(), all_gather=LINE, all_to_all=LINE, send=LINE, holds=True
        )
        for inner in loopback(size, timeout_s)
    ]


LINE = ([0, 1 << 20], [1e-6, 1e-5], [1, 1])  # a curve: bytes, seconds, bases


without_fabric = pytest.mark.skipif(
    not _core.build_info()["fabric"], reason="GEAR was built without the transport fabric"
)


@pytest.fixture(
    params=[loopback, emulated, group, shared_memory, pytest.param(fabric, marks=without_fabric)],
    ids=lambda make: make.__name__,
)
def make(request):
    return request.param


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_bytes_reach_all_ranks(make, size):
    def work(transport):
        own = transport.rank
        gathered = transport.allgather(b"rank%03d" % own)
        assert gathered == b"".join(b"rank%03d" % r for r in range(size))
        assert transport.allgather(b"") == b""
        for scale in (0, 1, 100_000):
            sent = [bytes([own + 1]) * (scale * r) for r in range(size)]
            for sizes in (None, [scale * own] * size):
                received = transport.exchange(sent, sizes)
                assert received == [bytes([s + 1]) * (scale * own) for s in range(size)]
            # Each third pair has nothing, and the others no size that is known.
            to = [entry if (own + r) % 3 else b"" for r, entry in enumerate(sent)]
            gives = [bool(scale * own and (s + own) % 3) for s in range(size)]
            assert transport.exchange_sparse(to, gives) == [
                bytes([s + 1]) * (scale * own) if gives[s] else b"" for s in range(size)
            ]
        twin = transport.duplicate()
        assert (twin.rank, twin.size, twin.name) == (own, size, transport.name)
        return twin.allgather(bytes([own])), transport.allgather(bytes([own + 1]))

    transports = make(size)
    assert [t.rank for t in transports] == list(range(size))
    assert {(t.name, t.size, t.timeout_s) for t in transports} == {(make.__name__, size, 60.0)}
    want = (bytes(range(size)), bytes(range(1, size + 1)))
    assert on_all(transports, work) == [want] * size


def test_a_missing_rank_is_named_by_the_class_of_gear(make):
    transports = make(3, 0.2)
    errors = on_all(transports[:2], lambda t: t.allgather(b"x"))
    for error in errors:
        assert type(error) is TransportError
        assert str(error).startswith("[transport] rank 2 did not take part in allgather within 0.2")


def test_arguments_are_checked(make):
    (transport,) = make(1)
    for to, sizes in [([b"", b""], [0]), ([b""], [0, 0]), ([], None)]:
        with pytest.raises(ValueError, match="give an entry for each of 1 ranks"):
            transport.exchange(to, sizes)
    with pytest.raises(ValueError, match="exchange with no sizes: give one for each of 1 ranks"):
        transport.exchange([b""], [])
    with pytest.raises(ValueError, match="exchange_sparse with 1 entries to send and 2 ranks"):
        transport.exchange_sparse([b""], [False, True])
    with pytest.raises(ValueError, match="sends itself 3 bytes and expects 4"):
        transport.exchange([b"abc"], [4])
    with pytest.raises(ValueError, match="a time-out of 0 s: more than 0"):
        make(1, 0.0)


def test_a_rank_out_of_range_is_refused():
    with pytest.raises(ValueError, match="rank 2 of 2 ranks: 0 to 1"):
        _core.group_transport(None, 2, 2, 1.0)


@pytest.mark.parametrize(
    ("came", "words"),
    [
        ([b"x"], "returned 1 entries of 2 ranks"),
        ([b"", b"xy"], "rank 1 gives 2 bytes, rank 0 expects 1 of it"),
        ([b"", 7], "exchange by the group failed: TypeError"),
    ],
)
def test_what_a_channel_returns_is_looked_at(came, words):
    class Odd:
        def exchange_bytes(self, to, sizes):
            return came

    transport = _core.group_transport(Odd(), 0, 2, 1.0)
    with pytest.raises(TransportError, match=words):
        transport.exchange([b"", b""], [0, 1])


def test_what_a_channel_raises_becomes_a_transport_error():
    class Broken:
        def allgather(self, mine, all):
            raise ConnectionResetError("peer 4 closed the connection")

        def exchange_bytes(self, to, sizes):
            raise TransportError("[transport] rank 1 has ended")

    transport = _core.group_transport(Broken(), 0, 1, 1.0)
    with pytest.raises(
        TransportError,
        match="allgather by the group failed: ConnectionResetError: peer 4 closed the connection",
    ):
        transport.allgather(b"x")
    with pytest.raises(TransportError, match=r"^\[transport\] rank 1 has ended$"):
        transport.exchange([b""], [0])
    with pytest.raises(TransportError, match="duplicate by the group failed: AttributeError"):
        transport.duplicate()


def test_an_interrupt_in_a_channel_is_not_lost():
    class Interrupted:
        def allgather(self, mine, all):
            raise KeyboardInterrupt

    transport = _core.group_transport(Interrupted(), 0, 1, 1.0)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        try:
            transport.allgather(b"x")
        except TransportError:
            threading.Event().wait(5)


def test_a_group_transport_lets_go_of_its_channel():
    channel = Channel(loopback(1)[0])
    alive = weakref.ref(channel)
    transport = _core.group_transport(channel, 0, 1, 1.0)
    del channel
    gc.collect()
    assert alive() is not None
    assert transport.allgather(b"x") == b"x"
    del transport
    gc.collect()
    assert alive() is None
