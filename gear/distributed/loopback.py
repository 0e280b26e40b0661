"""Ranks that are threads of this process: for tests, and to try a program without a launcher."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from typing import Any

from gear.distributed.channel import Absence, Channel, Views


class Board:
    """What the ranks of one loopback group share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.posted: dict[tuple[Any, ...], Any] = {}

    def part(self, key: tuple[Any, ...], rank: int, make: Callable[[], list[Any]]) -> Any:
        """This rank's part of what the first rank that asks for `key` makes for all of them."""
        with self.changed:
            parts = self.posted.setdefault(key, None) or make()
            self.posted[key] = parts
            mine, parts[rank] = parts[rank], None
            if all(part is None for part in parts):
                del self.posted[key]
            return mine


class ThreadChannel(Channel):
    """Bytes over a board in this process's memory."""

    kind = "threads"

    def __init__(self, board: Board, rank: int, timeout_s: float, name: str = "0") -> None:
        super().__init__(rank, board.size, timeout_s)
        self._board = board
        self._name = name
        self._calls = 0
        self._duplicates = 0

    def _move(self, to: Views, from_: Views, deadline: float) -> Absence:
        board, number = self._board, self._calls
        self._calls += 1
        missing = set(range(self.size)) - {self.rank}
        with board.changed:
            for peer in missing:
                board.posted[self._name, number, self.rank, peer] = bytes(to[peer])
            board.changed.notify_all()
            while missing:
                for peer in list(missing):
                    data = board.posted.pop((self._name, number, peer, self.rank), None)
                    if data is not None:
                        from_[peer][:] = data
                        missing.remove(peer)
                left = deadline - time.monotonic()
                if missing and left <= 0:
                    break
                if missing:
                    board.changed.wait(left)
        return Absence(late=tuple(sorted(missing)))

    def duplicate(self) -> Channel:
        self._duplicates += 1
        name = f"{self._name}.{self._duplicates}"
        channel = copy.copy(self)
        channel._name, channel._calls, channel._duplicates = name, 0, 0
        return channel

    def part(self, name: str, make: Callable[[], list[Any]]) -> Any:
        """This rank's part of what one of the ranks makes for all. Collective, without waiting."""
        self._duplicates += 1
        return self._board.part((name, self._name, self._duplicates), self.rank, make)
