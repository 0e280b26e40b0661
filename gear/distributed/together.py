"""A step that every rank takes, or none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gear.distributed.same import check_same
from gear.errors import (
    CorruptData,
    CudaError,
    GearError,
    InvalidArgument,
    IoError,
    OutOfMemory,
    TransportError,
)

if TYPE_CHECKING:
    from gear.distributed.group import Group

T = TypeVar("T")
_KINDS = (CorruptData, CudaError, InvalidArgument, IoError, OutOfMemory, TypeError, ValueError)
_ERRORS: dict[str, type[Exception]] = {kind.__name__: kind for kind in _KINDS}


class Ranks(Protocol):
    """A `Group`, or the channel that one is made of."""

    size: int

    def doing(self, what: str) -> AbstractContextManager[None]: ...
    def exchange(self, value: Any) -> list[Any]: ...


def together(group: Ranks, step: Callable[[], T], what: str) -> T:
    """What ``step`` returns on this rank, once it has ended on all.

    Args:
        what: the user's call that this is part of, for messages: "ReplayBuffer".

    Raises:
        Exception: what it raised here, an OSError as IoError; where it failed on other ranks only,
            an error of that class which names the first of them (a GearError for a class that is
            not GEAR's, TypeError or ValueError). No rank goes on, and none waits for one that
            failed.
    """
    return _exchanged(group, step, lambda _: None, what)[0]


def alike(group: Ranks, give: Callable[[], dict[str, Any]], what: str) -> list[dict[str, Any]]:
    """What ``give`` returned on every rank, by rank, which must be the same but for keys in
    brackets: ``"[made up]"``. Values that JSON can carry. Collective.

    Args:
        what: the user's call, behind its area: "[buffer] ReplayBuffer".

    Raises:
        InvalidArgument: on all ranks alike, naming the key, the values and their ranks.
        Exception: as `together`, where ``give`` failed on a rank.
    """
    told = _exchanged(group, give, lambda given: given, what.partition("] ")[2])[1]
    check_same(what, [{k: v for k, v in one.items() if k[0] != "["} for one in told])
    return told


def _exchanged(
    group: Ranks, step: Callable[[], T], tell: Callable[[T], Any], what: str
) -> tuple[T, list[Any]]:
    """What ``step`` returned here, and what ``tell`` makes of it on every rank."""
    failure: Exception | None = None
    result: Any = None
    given: Any = None
    with group.doing(what):
        try:
            result = step()
            given = tell(result)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other ranks are waiting
            failure = as_of_gear(error)
        told = [given]
        if group.size > 1:
            kind, text = ("", "") if failure is None else (type(failure).__name__, str(failure))
            rows = group.exchange([kind, text, given])
            told = [row[2] for row in rows]
            for rank, (kind, text, _) in enumerate(rows):
                if failure is not None:
                    break
                if kind:
                    raise raised_on(rank, kind, text)
    if failure is not None:
        raise failure
    return result, told


def as_of_gear(error: Exception) -> Exception:
    """`error`; an OSError as the IoError that it is in GEAR."""
    if isinstance(error, GearError) or not isinstance(error, OSError):
        return error
    failure = IoError(error.errno or 0, f"[io] {error}")
    failure.__cause__ = error
    return failure


def raised_on(rank: int, kind: str, text: str) -> Exception:
    """What another rank raised: an error of its class that says so, as `together` raises."""
    if kind in _ERRORS:
        return _ERRORS[kind](f"on rank {rank}: {text}")
    return GearError(f"on rank {rank}: {kind}: {text}")


def agreed(group: Ranks, label: str, value: str, what: str) -> str:
    """`value`, which must be the same on all ranks. Collective.

    Raises:
        InvalidArgument: on all ranks alike, naming the first that gave another than rank 0.
    """
    with group.doing(what):
        first, *others = group.exchange(value)
    for rank, other in enumerate(others, 1):
        if other != first:
            raise InvalidArgument(
                f"{label} {other!r} on rank {rank}, {first!r} on rank 0: give the same on all ranks"
            )
    return value


@contextlib.contextmanager
def ending_the_group(group: Group, what: str) -> Iterator[None]:
    """Around what is collective in the core, where ranks wait for each other: what fails on this
    rank alone ends the group, with "rank 1 (pid ...) `what`: ..." on the others.

    InvalidArgument is raised by all ranks alike, which go on.
    """
    try:
        yield
    except InvalidArgument:
        raise
    except TransportError as error:
        group.pass_on(error, what)
        raise
    except Exception as error:
        group.fail(f"{what}: {error}")
        raise
