"""GEAR's own store of texts: what its calls return, beside torch's where there is torch."""

from __future__ import annotations

import contextlib
import errno
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import pytest
from ports import fresh_port

from gear.distributed.meeting.store import AGAIN_S, Store, StoreServer, part_of


@contextlib.contextmanager
def own_store() -> Iterator[Store]:
    port = fresh_port()
    with contextlib.closing(Store("127.0.0.1", port, 10, StoreServer("127.0.0.1", port))) as store:
        yield store


@contextlib.contextmanager
def torch_store() -> Iterator[Any]:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    yield TCPStore("127.0.0.1", fresh_port(), 1, True, timedelta(seconds=10), False)


@pytest.fixture(
    params=[
        own_store,
        pytest.param(
            torch_store, marks=pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
        ),
    ]
)
def store(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.param() as made:
        yield made


def test_texts(store: Any) -> None:
    store.set("a", "x")
    store.set("ü", "long " * 50_000)
    assert store.get("a") == b"x"
    assert store.multi_get(["ü", "a"]) == [b"long " * 50_000, b"x"]
    assert store.check(["a", "ü"])
    assert not store.check(["a", "b"])


def test_numbers(store: Any) -> None:
    assert [store.add("n", 1), store.add("n", 41), store.add("n", 0)] == [1, 42, 42]
    assert store.get("n") == b"42"


def test_the_first_to_set_a_text_is_told_so(store: Any) -> None:
    assert store.compare_set("a", "", "mine") == b"mine"
    assert store.compare_set("a", "", "theirs") == b"mine"
    assert store.compare_set("a", "mine", "next") == b"next"
    assert store.get("a") == b"next"


def test_parts_have_keys_of_their_own(store: Any) -> None:
    one, two = part_of(store, "one"), part_of(part_of(store, "one"), "two")
    one.set("a", "1")
    two.set("a", "2")
    assert (one.get("a"), two.get("a")) == (b"1", b"2")
    assert not store.check(["a"])


def test_many_count_at_once() -> None:
    def count(place: tuple[str, int]) -> list[int]:
        with contextlib.closing(Store(*place, 10)) as mine:
            return [mine.add("n", 1) for _ in range(200)]

    with own_store() as store, ThreadPoolExecutor(16) as ranks:
        counted = list(ranks.map(count, [(store.host, store.port)] * 16))
    assert sorted(itertools.chain(*counted)) == list(range(1, 3201))


def test_what_is_not_there_is_named() -> None:
    with own_store() as store, pytest.raises(RuntimeError, match="the store has no 'b'"):
        store.get("b")


def test_a_server_that_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        closing = threading.Thread(target=lambda: listening.accept()[0].close())
        closing.start()
        with (
            contextlib.closing(Store("127.0.0.1", port, 10)) as store,
            pytest.raises(RuntimeError, match="the store is gone"),
        ):
            store.check(["a"])
        closing.join()
    with pytest.raises(RuntimeError, match="refused"):
        Store("127.0.0.1", port, 10).check(["a"])


def test_another_program_is_no_store() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"220 mail ready\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        with (
            contextlib.closing(Store("127.0.0.1", listening.getsockname()[1], 10)) as store,
            pytest.raises(RuntimeError, match="is no store of GEAR, but another program"),
        ):
            store.check(["a"])
        answering.join()


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b'["x", "check", []]\n',
        b"\xff\n",
        b"5\n",
        b"null\n",
        b'["gear store 1", "foo"]\n',
        b'["gear store 1", "serve"]\n',  # a function of the server that is no call
        b'["gear store 1", "get", 5]\n',
        b'["gear store 1", "set", "a"]\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_who_asks_what_is_no_question_is_let_go_and_the_others_are_served(said: bytes) -> None:
    with own_store() as store:
        with socket.create_connection((store.host, store.port)) as stranger:
            stranger.sendall(said)
            stranger.settimeout(10)
            assert stranger.recv(100) == b""
        store.set("a", "x")
        assert store.get("a") == b"x"


def test_with_no_files_left_it_serves_those_that_it_has_and_does_not_spin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts, tried_again = 0, threading.Event()

    def refuse(_: socket.socket) -> None:
        nonlocal attempts
        attempts += 1
        if attempts > 1:
            tried_again.set()
        raise OSError(errno.EMFILE, "Too many open files")

    with own_store() as store:
        store.set("a", "x")
        begin = time.monotonic()
        with monkeypatch.context() as full:
            full.setattr(socket.socket, "accept", refuse)
            late = Store(store.host, store.port, 10)
            with contextlib.closing(late), ThreadPoolExecutor(1) as other:
                asked = other.submit(late.get, "a")
                assert tried_again.wait(10)
                time.sleep(0.3)
                served, tried = store.get("a"), attempts
                took_s = time.monotonic() - begin
                full.undo()
                assert asked.result(10) == served == b"x"
    assert tried <= took_s / AGAIN_S + 1
