"""Ranks that are threads of this process: for tests, and to try a program without a launcher."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from gear import _core
from gear.distributed.channels.base import Absence, Channel, Views
from gear.distributed.channels.messages import MessageChannel, Parts
from gear.distributed.timeout import SLICE_S, Limit


class Board:
    """What the ranks of one loopback group share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.posted: dict[tuple[Any, ...], Any] = {}
        self.failures = [_core.Failure() for _ in range(size)]

    def part(self, key: tuple[Any, ...], rank: int, make: Callable[[], list[Any]]) -> Any:
        """This rank's part of what the first rank that asks for `key` makes for all of them."""
        with self.changed:
            parts = self.posted.setdefault(key, None) or make()
            self.posted[key] = parts
            mine, parts[rank] = parts[rank], None
            if all(part is None for part in parts):
                del self.posted[key]
            return mine


class ThreadChannel(MessageChannel):
    """Bytes over a board in this process's memory."""

    kind = "threads"

    def __init__(self, board: Board, rank: int, timeout_s: float) -> None:
        super().__init__(rank, board.size, timeout_s)
        self.failure = board.failures[rank]
        self._board = board
        self._name = "0"

    def _start(self) -> None:
        super()._start()
        self._moves = 0
        self._duplicates = 0

    def _move(
        self, to: Parts, from_: Parts, limit: Limit, arrived: Callable[[int], None]
    ) -> Absence:
        board, number = self._board, self._moves
        self._moves += 1
        missing = set(range(self.size)) - {self.rank}
        came: list[tuple[int, list[bytes]]] = []
        with board.changed:
            for peer in missing:
                board.posted[self._name, number, self.rank, peer] = [bytes(p) for p in to[peer]]
            board.changed.notify_all()
        while missing and (left := limit.left()) > 0:
            with board.changed:
                for peer in list(missing):
                    parts = board.posted.pop((self._name, number, peer, self.rank), None)
                    if parts is not None:
                        came.append((peer, parts))
                        missing.remove(peer)
                if missing and not came:
                    board.changed.wait(min(left, SLICE_S))
            for peer, parts in came:
                self._take(peer, parts, from_[peer], arrived)
            came.clear()
            self._raise_if_failed()
        return Absence(late=tuple(sorted(missing)))

    def _take(
        self, peer: int, parts: list[bytes], views: Views, arrived: Callable[[int], None]
    ) -> None:
        if not views:
            return
        if not parts:
            self._give_up(
                f"[transport] {self._who(peer)} sends nothing to {self._who(self.rank)}, which "
                f"waits for it in {self._doing}: all ranks must make the same calls"
            )
        views[0][:] = parts[0]
        arrived(peer)
        for view, part in zip(views[1:], parts[1:], strict=True):
            view[:] = part

    @property
    def failures(self) -> list[_core.Failure]:
        return self._board.failures

    def _pass_on(self, text: str) -> None:
        for failure in self._board.failures:
            failure.tell(text)

    def duplicate(self) -> Channel:
        self._duplicates += 1
        channel = self._twin()
        channel._name = f"{self._name}.{self._duplicates}"
        return channel

    def part(self, name: str, make: Callable[[], list[Any]]) -> Any:
        """This rank's part of what one of the ranks makes for all. Collective, without waiting."""
        self._duplicates += 1
        return self._board.part((name, self._name, self._duplicates), self.rank, make)
