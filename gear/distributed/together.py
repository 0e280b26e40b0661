"""A step that every rank takes, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gear.distributed.group import Group
from gear.errors import CorruptData, CudaError, GearError, InvalidArgument, IoError, OutOfMemory

T = TypeVar("T")
_KINDS = (CorruptData, CudaError, InvalidArgument, IoError, OutOfMemory, TypeError, ValueError)
_ERRORS: dict[str, type[Exception]] = {kind.__name__: kind for kind in _KINDS}


def together(group: Group, step: Callable[[], T]) -> T:
    """What ``step`` returns on this rank, once it has ended on all.

    Raises:
        Exception: what it raised here, an OSError as IoError; where it failed on other ranks only,
            an error of that class which names the first of them (a GearError for a class that is
            not GEAR's, TypeError or ValueError). No rank goes on, and none waits for one that
            failed.
    """
    failure: Exception | None = None
    try:
        result = step()
    except GearError as error:
        failure = error
    except OSError as error:
        failure = IoError(error.errno or 0, f"[io] {error}")
        failure.__cause__ = error
    except Exception as error:  # noqa: BLE001 - whatever it is, the other ranks are waiting
        failure = error
    if group.size > 1:
        kind, text = ("", "") if failure is None else (type(failure).__name__, str(failure))
        failures = group.exchange([kind, text])
        if failure is None:
            for rank, (kind, text) in enumerate(failures):
                if kind in _ERRORS:
                    raise _ERRORS[kind](f"on rank {rank}: {text}")
                if kind:
                    raise GearError(f"on rank {rank}: {kind}: {text}")
    if failure is not None:
        raise failure
    return result


def agreed(group: Group, label: str, value: str) -> str:
    """`value`, which must be the same on all ranks. Collective.

    Raises:
        InvalidArgument: on all ranks alike, naming the first that gave another than rank 0.
    """
    first, *others = group.exchange(value)
    for rank, other in enumerate(others, 1):
        if other != first:
            raise InvalidArgument(
                f"{label} {other!r} on rank {rank}, {first!r} on rank 0: give the same on all ranks"
            )
    return value
