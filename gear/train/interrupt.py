"""Ctrl-C and SIGTERM end a run at the next step boundary instead of in the middle of one."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """Context manager: `signum` is 0 until a signal arrived.

    The first signal only sets `signum` and gives the signals back to their previous handlers, so a
    second one aborts. Outside the main thread, where Python allows no handlers, it stays 0.

    repeat_s: a signal within that time after the first is the same request once more.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self, *, repeat_s: float = 0.0) -> None:
        self.signum = 0
        self._repeat_s = repeat_s
        self._first_s = 0.0
        self._previous: dict[signal.Signals, Any] = {}

    @property
    def exit_code(self) -> int:
        """128 + signal number, or 0."""
        return 128 + self.signum if self.signum else 0

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._previous = {s: signal.signal(s, self._on_signal) for s in self.SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if not self.signum:
            self.signum = signum
            self._first_s = time.monotonic()
            if not self._repeat_s:
                self._restore()
        elif time.monotonic() > self._first_s + self._repeat_s:
            self._restore()
            signal.raise_signal(signum)

    def _restore(self) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)
        self._previous = {}
