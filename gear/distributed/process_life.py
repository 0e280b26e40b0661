"""A process forks, and ends: what becomes of its channels, and of threads that call Python."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from gear.errors import TransportError

PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


class Speaker(Protocol):
    """A channel to other ranks."""

    def forget(self) -> None:
        """In a forked child: nothing that the parent uses is touched any more."""
        ...

    def say_ended(self, error: BaseException) -> None:
        """Tells the other ranks what ends this process."""
        ...

    def finish_telling(self) -> None:
        """Waits until that has left, some seconds at most."""
        ...


class Closable(Protocol):
    def close(self) -> None: ...


speakers: weakref.WeakSet[Any] = weakref.WeakSet()  # of Speaker
# Closed before the interpreter ends, which ends any thread that then wants its lock: in the middle
# of C++ that is the end of the process, by SIGABRT.
closed_at_exit: weakref.WeakSet[Any] = weakref.WeakSet()  # of Closable
last: list[Callable[[], None]] = []  # of what is called after that


def keep_for_ever(thing: Any) -> None:
    """Sees to it that `thing` is never destroyed."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _after_fork() -> None:
    for speaker in list(speakers):
        speaker.forget()
    closed_at_exit.clear()
    last.clear()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def end() -> None:
    """Says the exception that ends this process, which other ranks would see gone only."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is not None and not isinstance(error, TransportError):
        for speaker in list(speakers):
            with _going_on():
                speaker.say_ended(error)
    finish_telling()
    for closable in list(closed_at_exit):
        with _going_on():
            closable.close()
    for call in list(last):
        with _going_on():
            call()


def finish_telling() -> None:
    """Waits until the other ranks have been told why this process ends, some seconds at most."""
    for speaker in list(speakers):
        with _going_on():
            speaker.finish_telling()


def _going_on() -> contextlib.suppress:
    """Around one of several calls at the end. What one raises has been said already or is of no
    matter any more, and a Ctrl-C ends its wait, not the others."""
    return contextlib.suppress(Exception, KeyboardInterrupt)


def described(error: BaseException) -> str:
    """An exception in a few words: its class, what it says, and where in the user's program."""
    if isinstance(error, KeyboardInterrupt):
        return "Ctrl-C (KeyboardInterrupt)"
    said = next(iter(str(error).splitlines()), "")[:200]
    trace = error.__traceback__
    where = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            where = f" ({os.path.basename(code.co_filename)}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}{': ' if said else ''}{said}{where}"
