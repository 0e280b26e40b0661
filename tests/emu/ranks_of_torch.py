"""Ranks of torch's process groups as threads of one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

import gear.emu as emu
from gear.emu.group import make

Result = TypeVar("Result")
TIMEOUT = timedelta(seconds=60)


def of_all(ranks: Sequence[int], play: Callable[[int], Result]) -> list[Result]:
    """What each does, side by side."""
    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(play, ranks))


def by_gloo(size: int, play: Callable[[Any, int], Result]) -> list[Result]:
    """`play(group, rank)` of that many ranks."""
    store = dist.HashStore()

    def rank(number: int) -> Result:
        return play(dist.ProcessGroupGloo(store, number, size, TIMEOUT), number)

    return of_all(range(size), rank)


def emulated(
    job: emu.Job,
    play: Callable[[Any, int], Result],
    ranks: Sequence[int] | None = None,
    timeout: timedelta = TIMEOUT,
) -> list[Result]:
    """`play(group, rank)` of the real ranks of a group of the job (None: of all of it)."""
    members = list(range(job.ranks)) if ranks is None else list(ranks)
    store = dist.HashStore()

    def rank(number: int) -> Result:
        return play(make(job, members, members.index(number), store, timeout), number)

    return of_all([one for one in members if one in job.real], rank)
