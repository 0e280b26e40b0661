"""Python's warnings, and what libraries log as one: of every rank, with its number."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def warnings_told(told: Callable[[str], None]) -> Iterator[None]:
    """Inside, each of them is one call of `told`, and comes from there alone.

    A library's own handler that writes to the console is silent about what also reaches the root,
    from whenever it is there; its files get all. What a logger does not propagate is left to it.
    """

    def show(message: Any, category: Any, filename: str, lineno: int, *_: Any) -> None:
        told(f"{filename}:{lineno}: {category.__name__}: {message}")

    root = logging.getLogger()
    ours, quiet = _Told(told), _BelowWarning()
    silenced = list(root.handlers)
    make_record, shown = logging.getLogRecordFactory(), warnings.showwarning

    def made(name: str, level: int, *given: Any, **more: Any) -> logging.LogRecord:
        if level >= logging.WARNING:  # before any handler sees it
            for handler in _on_the_way(name):
                if quiet not in handler.filters and _is_console(handler):
                    handler.addFilter(quiet)
                    silenced.append(handler)
        return make_record(name, level, *given, **more)

    warnings.showwarning = show  # type: ignore[assignment]
    logging.setLogRecordFactory(made)
    for handler in silenced:
        handler.addFilter(quiet)
    root.addHandler(ours)
    try:
        yield
    finally:
        root.removeHandler(ours)
        for handler in silenced:
            handler.removeFilter(quiet)
        logging.setLogRecordFactory(make_record)
        warnings.showwarning = shown


def _on_the_way(name: str) -> list[logging.Handler]:
    """The handlers below the root that see a record of this logger; none if it stops before."""
    logger, passed = logging.getLogger(name), []
    while logger.parent:
        if not logger.propagate:
            return []
        passed += logger.handlers
        logger = logger.parent
    return passed


def _is_console(handler: logging.Handler) -> bool:
    """Whether it writes to a standard stream; rich's has a console."""
    stream = getattr(handler, "stream", getattr(getattr(handler, "console", None), "file", None))
    return stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)


def to_stderr(rank: int, size: int) -> Callable[[str], None]:
    """Says a text on standard error; among several ranks, whose it is."""
    name = f"rank {rank}: " if size > 1 else ""
    return lambda text: print(f"{name}{text}", file=sys.stderr, flush=True)


class _Told(logging.Handler):
    def __init__(self, told: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        self._told(f"{record.name}: {self.format(record)}")


class _BelowWarning(logging.Filter):
    """What is a warning goes elsewhere."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno < logging.WARNING
