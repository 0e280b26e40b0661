"""A step that every rank takes, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gear.distributed.group import Group
from gear.errors import CorruptData, CudaError, GearError, InvalidArgument, IoError, OutOfMemory

T = TypeVar("T")
_KINDS = (CorruptData, CudaError, InvalidArgument, IoError, OutOfMemory)
_ERRORS = {kind.__name__: kind for kind in _KINDS}


def together(group: Group, step: Callable[[], T]) -> T:
    """What ``step`` returns on this rank, once it has ended on all.

    Raises:
        GearError: what it raised here, an OSError as IoError; where it failed on another rank
            only, an error of that class which says so. No rank goes on, and none waits for one
            that failed.
    """
    failure: GearError | None = None
    try:
        result = step()
    except GearError as error:
        failure = error
    except OSError as error:
        failure = IoError(error.errno or 0, f"[io] {error}")
        failure.__cause__ = error
    if group.size > 1:
        kind, text = ("", "") if failure is None else (type(failure).__name__, str(failure))
        failures = group.exchange([kind, text])
        if failure is None:
            for rank, (kind, text) in enumerate(failures):
                if kind:
                    raise _ERRORS.get(kind, GearError)(f"on rank {rank}: {text}")
    if failure is not None:
        raise failure
    return result
