"""Appending experience."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from gear import _core
from gear.arguments import check_count, check_flag, check_number, check_timeout
from gear.errors import InvalidArgument
from gear.in_process import InProcess


class Writer(InProcess, _core.Writer):
    """Appends steps to one open episode at a time; made by `ReplayBuffer.writer`.

    ``append(priority=None, **columns)`` adds one step. ``extend(priority=None, **columns)`` adds T
    consecutive steps (every column ``[T, *shape]``). Values are NumPy arrays of the column's dtype,
    CPU tensors with DLPack, or Python scalars for scalar columns. Floats of another width are
    rounded to the column's, unless a finite one would become infinite; nothing else is converted.
    The first step opens an episode. A priority of None stands for the largest so far. A vector
    environment that resets itself returns rows that are no steps, and a writer cannot tell: do not
    append these.

    Both raise InvalidArgument for a missing, unknown or misshapen column, a value that does not fit
    or a bad priority, and then store nothing; OutOfMemory if every page belongs to an open episode;
    TimeoutError if the rate limit holds them up for longer than ``timeout_s``. After 10 s of such a
    wait the logger ``gear`` warns, with the counts.

    At the end of a ``with`` block the writer ends an open episode as truncated, without a closing
    step, and the logger ``gear`` warns of it. The buffer keeps the steps appended until then. Only
    one thread at a time may use a writer. In a forked child of the process that made the
    buffer, all but `close` and ``episode`` raise InvalidArgument.
    """

    _instead = "make a writer in the thread that appends, with buffer.writer()"

    def __init__(
        self, shard: _core.Shard, episode: int | None = None, timeout_s: float | None = None
    ) -> None:
        wait_s = check_timeout("[writer]", timeout_s)
        if episode is not None:
            episode = check_count("[writer] episode", episode)
        super().__init__(shard, episode)
        self._set_timeout(wait_s)

    def end_episode(
        self,
        *,
        terminated: bool = False,
        weight: float | None = None,
        final: Mapping[str, Any] | None = None,
    ) -> None:
        """Ends the open episode; without one, does nothing.

        Args:
            terminated: True: the environment ended it; False: it was cut off (truncated).
            weight: the episode's own priority; None: the mean of its steps' priorities.
            final: columns of one closing step, for example the last observation. Windows reach
                it, samplers never draw it, and it lacks the columns that you do not give.
        """
        ended = check_flag("[writer] terminated", terminated)
        if weight is not None:
            weight = check_number("[writer] weight", weight)
        if not isinstance(final, Mapping | None):
            raise InvalidArgument(f"[writer] final {final!r}: a dict by column is allowed")
        self._end_episode(ended, weight, None if final is None else dict(final))

    def close(self) -> None:
        """Ends an open episode as truncated, with a warning. The writer takes no more steps.

        In a forked child nothing ends: the episode is the parent's.
        """
        self._cut(None)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._cut(kind)

    def _cut(self, kind: type[BaseException] | None) -> None:
        """Closes, and warns where an episode was open; kind: the exception that is under way."""
        cut = self._close()
        if cut is None:
            return
        log = logging.getLogger("gear")
        if kind is not None:
            log.warning(
                "[writer] episode %d was open when %s left its writer: the writer ended it as "
                "truncated, without a closing step",
                cut[0],
                kind.__name__,
            )
            return
        log.warning(
            "[writer] episode %d was open, with %d step(s), when its writer was closed: the writer "
            "ended it as truncated, without a closing step, so that what follows its last step is "
            "zero in a batch, and masked; call writer.end_episode(terminated=..., final={...}) at "
            "its end",
            *cut,
        )
