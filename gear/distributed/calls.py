"""Calls that may not come back: into a library that waits for another process, deaf to signals."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from gear.distributed.timeout import SLICE_S

T = TypeVar("T")

STORE_WAIT_S = 2.0  # for a store whose host may be gone


class Late(Exception):
    """A call took too long; `reason` says what that may mean."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def in_time(
    deadline: float, call: Callable[[], T], reason: str, look: Callable[[], None] | None = None
) -> T:
    """What `call` returns or raises, in another thread; Late with `reason` where it takes longer.

    Ctrl-C ends the wait, and what `look` raises does, which is asked every SLICE_S.
    """
    answer: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
    _a_caller().make(call, answer)
    while True:
        left = max(deadline - time.monotonic(), 0.001)
        with contextlib.suppress(queue.Empty):
            result, error = answer.get(timeout=left if look is None else min(left, SLICE_S))
            if error is not None:
                raise error
            return result  # type: ignore[return-value]
        if time.monotonic() >= deadline:
            raise Late(reason)
        if look is not None:
            look()


def soon(call: Callable[[], T], wait_s: float = STORE_WAIT_S) -> T | None:
    """What `call` to a store returns; None where the store fails or does not answer."""
    try:
        return in_time(time.monotonic() + wait_s, call, "")
    except (Late, RuntimeError):  # the store is gone
        return None


class _Caller:
    """A thread that makes one call after the other; one that does not come back keeps it."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Any]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="gear-call", daemon=True).start()

    def make(self, call: Callable[[], Any], answer: Any) -> None:
        self._calls.put((call, answer))

    def _run(self) -> None:
        while True:
            call, answer = self._calls.get()
            told: tuple[Any, BaseException | None]
            try:
                told = call(), None
            except BaseException as error:  # noqa: BLE001 - raised again by who waits
                told = None, error
            _idle.append(self)
            answer.put(told)
            del call, answer, told


# Kept, since Python 3.12 starts no thread while it ends, when there is still something to say.
_idle: deque[_Caller] = deque()


def _a_caller() -> _Caller:
    try:
        return _idle.pop()
    except IndexError:
        return _Caller()


os.register_at_fork(after_in_child=_idle.clear)
