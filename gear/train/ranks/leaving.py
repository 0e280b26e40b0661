"""How a rank ends that the others have not ended with: its process leaves, and waits for nobody."""

from __future__ import annotations

import atexit
import os
import sys
import time
from functools import partial
from types import TracebackType

import gear
from gear.distributed import process_life
from gear.distributed.process_life import described
from gear.distributed.timeout import Limit
from gear.train.interrupt import GOES_ON, Taken

# A rank that failed stays so long, or until the others of its host have ended: that they name the
# one that failed first, and what rank 0 has said is there for them to read.
LINGER_S = 3.0


def leave_after(error: BaseException, group: gear.Group) -> None:
    """Tells the others of `error`; when Python ends, the process does, at once, and runs no
    destructor that would wait for them."""
    lingers = group.rank == 0 or isinstance(error, gear.TransportError)
    if not isinstance(error, (gear.TransportError, SystemExit)):
        try:
            group.fail(f"ended with {described(error)}")
        except gear.InvalidArgument:  # the group is closed already
            lingers = False
    lingers_in = group if lingers else None
    atexit.register(_leave, _code(error), lingers_in, error.__traceback__)


def leave_unmet(error: BaseException) -> None:
    """Where the ranks did not meet: as `leave_after`, for threads that still connect."""
    process_life.last.append(partial(_leave, _code(error), None, error.__traceback__))


def _code(error: BaseException) -> int:
    if isinstance(error, Taken):
        return GOES_ON
    return 130 if isinstance(error, KeyboardInterrupt) else 2


def _leave(code: int, lingers_in: gear.Group | None, _: TracebackType | None) -> None:
    """The trace keeps alive what the frames hold."""
    limit = Limit.of(0.0 if lingers_in is None else LINGER_S)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        process_life.finish_telling()
        while lingers_in and limit.left() and not _alone_here(lingers_in):
            time.sleep(0.02)
    finally:  # after Ctrl-C, too: else Python's end would go on
        os._exit(code)


def _alone_here(group: gear.Group) -> bool:
    """Whether the others of this host have ended; a node may be of several hosts."""
    host = group.members[group.rank].host
    others = sum(member.host == host for member in group.members) - 1
    return len(group.missing(0.0)) >= others
