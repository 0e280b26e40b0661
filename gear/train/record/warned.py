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
    """Inside, each of them is one call of `told`, and comes from there alone."""

    def show(message: Any, category: Any, filename: str, lineno: int, *_: Any) -> None:
        told(f"{filename}:{lineno}: {category.__name__}: {message}")

    root = logging.getLogger()
    handler = _Told(told)
    others = list(root.handlers)
    shown = warnings.showwarning
    warnings.showwarning = show  # type: ignore[assignment]
    quiet = _BelowWarning()
    for other in others:
        other.addFilter(quiet)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        for other in others:
            other.removeFilter(quiet)
        warnings.showwarning = shown


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
