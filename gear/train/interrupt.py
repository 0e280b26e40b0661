"""Ctrl-C, SIGTERM and SIGUSR1 end a run at the next step boundary, not in the middle of a step."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, NoReturn

# sysexits.h calls it EX_TEMPFAIL: nothing is wrong, try again. No other end of a run has this code.
GOES_ON = 75
BY_SCHEDULER = (signal.SIGTERM, signal.SIGUSR1)  # by which it takes a machine away


class Taken(KeyboardInterrupt):
    """SIGTERM or SIGUSR1 while no run was between its first step and its last: as Ctrl-C, but the
    process ends with GOES_ON."""


def exit_code(signum: int) -> int:
    """Of a run that saved everything because of this signal: 130 after Ctrl-C, when somebody wants
    it to end; GOES_ON after those by which a scheduler takes a machine away (SIGTERM, SIGUSR1)."""
    return 128 + signum if signum == signal.SIGINT else GOES_ON


@contextmanager
def taken_outside_of_runs() -> Iterator[None]:
    """SIGTERM and SIGUSR1 raise Taken in the main thread, where nothing else is to be done at them.

    May stand within itself: the process begins with it, and what imports for seconds is inside.
    """
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        free = [s for s in BY_SCHEDULER if signal.getsignal(s) == signal.SIG_DFL]
        before = {s: signal.signal(s, _take) for s in free}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _take(signum: int, frame: FrameType | None) -> NoReturn:
    name = signal.Signals(signum).name
    raise Taken(f"[train] {name} before the run began, or at its end: start the same command again")


class Interrupt:
    """Context manager: `signum` is 0 until a signal arrived.

    The first signal only sets `signum` and gives the signals back to their previous handlers, so a
    second one aborts. Outside the main thread, where Python allows no handlers, it stays 0.

    repeat_s: a signal within that time after the first is the same request once more.
    """

    SIGNALS = (signal.SIGINT, *BY_SCHEDULER)

    def __init__(self, *, repeat_s: float = 0.0) -> None:
        self.signum = 0
        self._repeat_s = repeat_s
        self._first_s = 0.0
        self._previous: dict[signal.Signals, Any] = {}

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
        _set(self._previous)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if not self.signum:
            self.signum = signum
            self._first_s = time.monotonic()
            if not self._repeat_s:
                self._abort_at_the_next()
        elif time.monotonic() > self._first_s + self._repeat_s:
            self._abort_at_the_next()
            signal.raise_signal(signum)

    def _abort_at_the_next(self) -> None:
        """Taken would say that there is no run, and its exit code that nothing is lost."""
        _set({s: signal.SIG_DFL if h is _take else h for s, h in self._previous.items()})


def _set(handlers: Mapping[signal.Signals, Any]) -> None:
    for signum, handler in handlers.items():
        signal.signal(signum, handler)
