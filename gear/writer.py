"""Appending experience."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from gear import _core
from gear.arguments import check_count, check_timeout


class Writer(_core.Writer):
    """Appends steps to one open episode at a time; made by `ReplayBuffer.writer`.

    ``append(priority=None, **columns)`` adds one step, ``extend(priority=None, **columns)`` T
    consecutive ones (every column ``[T, *shape]``). Values: NumPy arrays of exactly the column's
    dtype, CPU tensors with DLPack, Python scalars for scalar columns. The first step opens an
    episode. A priority of None stands for the largest seen so far.

    Both raise InvalidArgument for a missing, unknown or misshapen column or a bad priority
    (nothing is stored), OutOfMemory when every page belongs to some open episode, and TimeoutError
    when the rate limit holds them up for longer than ``timeout_s``.

    As a context manager it ends an open episode as truncated, and when an exception leaves it says
    so in a warning of the logger ``gear``: what was appended until then is kept, and its last step
    has no closing step behind it. One thread at a time.
    """

    def __init__(
        self, shard: _core.Shard, episode: int | None = None, timeout_s: float | None = None
    ) -> None:
        wait_s = check_timeout("[ingest]", timeout_s)
        if episode is not None:
            episode = check_count("[ingest] episode", episode)
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
            terminated: the environment ended it; False: it was cut off (truncated).
            weight: the episode's own priority; None: the mean of its steps' priorities.
            final: columns of one closing step, say the last observation: windows reach it,
                samplers never choose it, and columns not given are absent from it.
        """
        self._end_episode(bool(terminated), weight, None if final is None else dict(final))

    def close(self) -> None:
        """Ends an open episode as truncated; the writer takes no more."""
        self._close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        episode = None if kind is None else self.episode
        self.close()
        if kind is not None and episode is not None:
            logging.getLogger("gear").warning(
                "[ingest] episode %d was open when %s left its writer: it is ended as truncated, "
                "without a closing step",
                episode,
                kind.__name__,
            )
