"""A store of texts over TCP at which ranks meet where there is no torch: what its TCPStore is."""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MARK = "gear store 1"  # of each question and answer: another program's are neither
MOST_BYTES = 1 << 20  # of a question
AGAIN_S = 0.01  # after a connection that could not be taken


class StoreServer:
    """Keeps the texts, in a thread of rank 0's process, until that ends or closes it.

    Raises:
        OSError: the address cannot be served.
    """

    def __init__(self, host: str, port: int) -> None:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(("", port))
            listening.listen(4096)
        except OSError:
            listening.close()
            raise
        listening.setblocking(False)
        self._texts: dict[str, str] = {}
        self._calls: dict[str, Callable[..., Any]] = {
            "set": self._set,
            "get": self._get,
            "check": self._check,
            "add": self._add,
            "compare_set": self._compare_set,
        }
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ)
        self._ended, self._end = socket.socketpair()
        self._selector.register(self._ended, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="gear-store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, and all connections."""
        self._end.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            for key, events in self._selector.select():
                if key.fileobj is self._ended:
                    for one in list(self._selector.get_map().values()):
                        one.fileobj.close()  # type: ignore[union-attr]
                    self._selector.close()
                    return
                if key.data is None:
                    self._accept(key.fileobj)
                    continue
                try:
                    key.data.turn(events, self._answer)
                except Exception:  # noqa: BLE001 - it has gone, or is no rank of GEAR
                    self._selector.unregister(key.fileobj)
                    key.data.connection.close()
                    continue
                wanted = selectors.EVENT_WRITE if key.data.unsent else selectors.EVENT_READ
                if wanted != key.events:
                    self._selector.modify(key.fileobj, wanted, key.data)

    def _accept(self, listening: Any) -> None:
        try:
            connection, _ = listening.accept()
        except OSError:  # it went again, or files are too many: the others are served on
            time.sleep(AGAIN_S)  # it still waits, and would be asked for without end
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(connection, selectors.EVENT_READ, _Asking(connection))

    def _answer(self, line: bytes) -> bytes:
        mark, call, *given = json.loads(line)
        if mark != MARK:
            raise ValueError(f"{mark!r} is no question")
        answer = self._calls[call](*given)
        return json.dumps([MARK, answer]).encode() + b"\n"

    def _set(self, key: str, text: str) -> None:
        self._texts[key] = text

    def _get(self, keys: list[str]) -> list[str | None]:
        return [self._texts.get(key) for key in keys]

    def _check(self, keys: list[str]) -> bool:
        return all(key in self._texts for key in keys)

    def _add(self, key: str, more: int) -> int:
        self._texts[key] = str(int(self._texts.get(key, "0")) + more)
        return int(self._texts[key])

    def _compare_set(self, key: str, expected: str, desired: str) -> str:
        if self._texts.get(key, "") == expected:
            self._texts[key] = desired
        return self._texts.get(key, expected)


@dataclass
class _Asking:
    """A rank that is served."""

    connection: socket.socket
    unread: bytes = b""
    unsent: bytes = b""

    def turn(self, events: int, answer: Any) -> None:
        """Reads what there is of questions, or goes on to send answers. Raises OSError at its end,
        and anything for what is no question."""
        if events & selectors.EVENT_READ:
            came = self.connection.recv(1 << 16)
            if not came:
                raise ConnectionResetError
            *lines, self.unread = (self.unread + came).split(b"\n")
            self.unsent += b"".join(map(answer, lines))
            if len(self.unread) > MOST_BYTES:
                raise ValueError("no end of a question")
        if self.unsent:
            try:
                self.unsent = self.unsent[self.connection.send(self.unsent) :]
            except BlockingIOError:
                return


def part_of(store: Any, prefix: str) -> Any:
    """The part of a store, this one or torch.distributed's, whose keys begin so."""
    if isinstance(store, Store):
        return store.under(prefix)
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    return PrefixStore(prefix, store)


@dataclass
class Store:
    """The texts at a server, with the functions of torch.distributed's TCPStore that GEAR calls.

    One question at a time. Every call raises RuntimeError once the server is gone.

    Args:
        server: kept with it; None: it is in another process.
        prefix: of all keys.
    """

    host: str
    port: int
    wait_s: float
    server: StoreServer | None = None
    prefix: str = ""
    _line: _Line | None = field(default=None, repr=False)

    def under(self, prefix: str) -> Store:
        """A part of this store, whose keys begin so."""
        return Store(
            self.host, self.port, self.wait_s, self.server, f"{self.prefix}{prefix}/", self._open()
        )

    def close(self) -> None:
        """Of the whole store, its parts included."""
        if self._line is not None:
            self._line.close()
        if self.server is not None:
            self.server.close()

    def set(self, key: str, text: str) -> None:
        self._ask("set", self.prefix + key, text)

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def multi_get(self, keys: list[str]) -> list[bytes]:
        texts = self._ask("get", [self.prefix + key for key in keys])
        absent = [key for key, text in zip(keys, texts, strict=True) if text is None]
        if absent:
            raise RuntimeError(f"the store has no {absent[0]!r}")
        return [text.encode() for text in texts]

    def check(self, keys: list[str]) -> bool:
        return bool(self._ask("check", [self.prefix + key for key in keys]))

    def add(self, key: str, more: int) -> int:
        return int(self._ask("add", self.prefix + key, more))

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        return str(self._ask("compare_set", self.prefix + key, expected, desired)).encode()

    def _open(self) -> _Line:
        if self._line is None:
            try:
                connection = socket.create_connection((self.host, self.port), self.wait_s)
            except OSError as error:
                raise RuntimeError(str(error)) from error
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._line = _Line(connection)
        return self._line

    def _ask(self, call: str, *given: Any) -> Any:
        return self._open().ask(json.dumps([MARK, call, *given]).encode() + b"\n")


class _Line:
    """A connection to the server, which the parts of a store have in common."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = connection.makefile("rb")
        self._turn = threading.Lock()

    def close(self) -> None:
        self._answers.close()
        self._connection.close()

    def ask(self, question: bytes) -> Any:
        try:
            with self._turn:
                self._connection.sendall(question)
                line = self._answers.readline()
        except (OSError, ValueError) as error:
            raise RuntimeError(f"the store is gone: {error}") from error
        if not line:
            raise RuntimeError("the store is gone: it closed the connection")
        try:
            mark, answer = json.loads(line)
        except ValueError:
            mark = None
        if mark != MARK:
            raise RuntimeError("what listens there is no store of GEAR, but another program")
        return answer
