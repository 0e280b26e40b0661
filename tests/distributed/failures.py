"""A rank that is gone, or does not come: the others must say so, and which, in time.

These programs end the group: they are played by themselves, by three ranks or more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numbered
import numpy as np

import gear
from distributed.content import SCHEMA
from distributed.participant import Participant


def play_absent(missing: int, me: Participant) -> None:
    """A rank lives but does not call next again: until the others have given up on it."""

    def sleep() -> None:
        for rank in range(me.size):
            while rank != me.rank and not (me.folder / f"gave-up-{rank}").exists():
                time.sleep(0.05)
        me.record("slept", True)
        raise InterruptedError

    _play(me, missing, sleep)


def play_hang(me: Participant) -> None:
    """What a deadlock looks like to the suite."""
    threading.Event().wait()


def _play(me: Participant, missing: int, go_missing: Callable[[], None]) -> None:
    buffer = me.buffer(SCHEMA, 400, page_steps=4, tier="shared")
    with buffer.writer() as writer:
        first = me.rank * 1000 + 1
        writer.extend(**numbered.rows(np.arange(first, first + 100)))
    loader = me.loader(buffer, 64, outputs=numbered.outputs(-3, 3))
    try:
        for turn in range(1_000_000):
            began = time.monotonic()
            if turn == 5 and me.rank == missing:
                go_missing()
            next(loader)
    except gear.TransportError as error:
        me.record("message", str(error))
        me.record("waited_s", time.monotonic() - began)
    except InterruptedError:
        pass
    (me.folder / f"gave-up-{me.rank}").touch()
    loader.close()
    buffer.close()
