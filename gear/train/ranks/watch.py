"""Collectives that wait on a GPU: a thread sees to it that none of them waits for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

LOOK_EVERY_S = 0.5


class Expected(Protocol):
    """What was put on a stream; both are asked from the thread."""

    def done(self) -> bool:
        """The GPU has come past it."""
        ...

    def failed(self) -> bool:
        """The library has given it up, and the GPU may wait for it for ever."""
        ...


class Watch:
    """Ends what a GPU waits for when a rank is gone or a time is over.

    Whoever enqueues a collective goes on at once and calls `expect`. Work on one stream ends in
    order, so the last one speaks for all before it.

    Args:
        missing: the ranks that have ended, as far as this one can tell at once.
        abort: takes from the GPU what it waits for; called once. Results are then of no use.
        timeout_s: longest time from `expect` to done.
    """

    def __init__(
        self,
        missing: Callable[[], list[int]],
        abort: Callable[[], None],
        *,
        timeout_s: float,
        look_every_s: float = LOOK_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._missing = missing
        self._abort = abort
        self._timeout_s = timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._expected: Expected | None = None
        self._since_s = 0.0
        self._failed: Expected | None = None  # at the last look
        self._reason = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(look_every_s,), name="gear-watch", daemon=True
        )
        self._thread.start()

    @property
    def reason(self) -> str:
        """Why it has aborted; empty: it has not."""
        return self._reason

    def expect(self, work: Expected) -> None:
        with self._lock:
            self._expected, self._since_s = work, self._clock()

    def close(self) -> None:
        """Ends the thread; what is still expected is watched no more."""
        self._stop.set()
        self._thread.join()

    def _run(self, look_every_s: float) -> None:
        while not self._reason and not self._stop.wait(look_every_s):
            self.look()

    def look(self) -> None:
        """One look; the thread calls it, and tests do."""
        with self._lock:
            work, since_s = self._expected, self._since_s
        if work is None:
            return
        if work.done():
            with self._lock:
                if self._expected is work:
                    self._expected = None
            return
        # Twice, since the end of the work and of the wait for it are moments apart.
        failed_before, self._failed = self._failed, work if work.failed() else None
        reason = ""
        if self._failed is not None and self._failed is failed_before:
            reason = "NCCL has given up an all-reduce"
        elif self._missing():
            reason = "a rank has ended"
        elif self._clock() - since_s > self._timeout_s:
            reason = f"no answer within {self._timeout_s:g} s"
        if reason:
            self._reason = reason  # before the GPU goes on, with results of no use
            self._abort()
