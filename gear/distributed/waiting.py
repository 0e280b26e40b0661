"""A word about a wait for other ranks, while it goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from gear.distributed.same import named

log = logging.getLogger("gear")

QUIET_S = 5.0  # from the begin of a wait until something is said of it


class Waiting:
    """A wait in which ranks meet; as a context manager, around it.

    One that takes longer than `quiet_s` is told of in a warning, once: a launcher's variables may
    be there without the ranks that they speak of, and the wait may be long.

    Args:
        mine: who waits.
        who: for whom, as far as it is known at first.
        advice: what says that there are others, and what to do if they do not come.
        most_s: how long it may take; None: without end.
        quiet_s: None: QUIET_S.

    """

    def __init__(
        self,
        mine: str,
        who: str,
        advice: str,
        *,
        most_s: float | None = None,
        quiet_s: float | None = None,
    ) -> None:
        self._who = who
        self._mine = mine
        self._advice = advice
        self._most_s = most_s
        self._quiet_s = QUIET_S if quiet_s is None else quiet_s

    @staticmethod
    def of_connected(rank: int, size: int, timeout_s: float) -> Waiting:
        """Of ranks that something has connected already, and that are to make a group."""
        advice = "each of them must make this group, too; look at their output"
        return Waiting(f"rank {rank} of {size}", "the other ranks", advice, most_s=timeout_s)

    def __enter__(self) -> Waiting:
        self._timer = threading.Timer(self._quiet_s, self._say)
        self._timer.name, self._timer.daemon = "gear-waiting", True
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def tell(self, absent: Sequence[int]) -> None:
        """Takes in which ranks have not come; none: they have, and connect."""
        self._who = named(absent) if absent else "a connection to each of the others"

    def _say(self) -> None:
        most = "without end" if self._most_s is None else f"up to {self._most_s:g} s"
        log.warning(
            "[group] %s has waited %g s for %s, and waits %s: %s",
            *(self._mine, self._quiet_s, self._who, most, self._advice),
        )
