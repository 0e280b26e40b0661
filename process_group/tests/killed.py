"""What ranks are told when one is killed while it is in a collective operation."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import gear_mpi
from process_group.tests.rehearsal import rehearse

VICTIM = 2  # of three
LARGE = 3 << 17  # elements: more than a piece


def all_reduce(group: Any) -> Any:
    return dist.all_reduce(torch.ones(LARGE), group=group, async_op=True)


def all_reduce_on_node(group: Any) -> Any:
    """In many steps through memory that the ranks share, of which the victim takes the first."""
    return dist.all_reduce(torch.ones(LARGE), group=group, async_op=True)


def broadcast(group: Any) -> Any:
    return dist.broadcast(torch.ones(LARGE), VICTIM, group=group, async_op=True)


def reduce(group: Any) -> Any:
    return dist.reduce(torch.ones(LARGE), 0, group=group, async_op=True)


def all_gather(group: Any) -> Any:
    taken = torch.empty(3 * LARGE)
    return dist.all_gather_into_tensor(taken, torch.ones(LARGE), group=group, async_op=True)


def gather(group: Any) -> Any:
    taken = [torch.empty(LARGE) for _ in range(3)] if dist.get_rank() == 0 else None
    return dist.gather(torch.ones(LARGE), taken, 0, group=group, async_op=True)


def scatter(group: Any) -> Any:
    given = [torch.ones(LARGE) for _ in range(3)] if dist.get_rank() == VICTIM else None
    return dist.scatter(torch.empty(LARGE), given, VICTIM, group=group, async_op=True)


def reduce_scatter(group: Any) -> Any:
    taken = torch.empty(LARGE // 3)
    return dist.reduce_scatter_tensor(taken, torch.ones(LARGE), group=group, async_op=True)


def all_to_all(group: Any) -> Any:
    return dist.all_to_all_single(torch.empty(LARGE), torch.ones(LARGE), group=group, async_op=True)


def barrier(group: Any) -> Any:
    return dist.barrier(group=group, async_op=True)


KINDS: dict[str, Callable[[Any], Any]] = {
    function.__name__: function
    for function in (
        all_reduce,
        broadcast,
        reduce,
        all_gather,
        gather,
        scatter,
        reduce_scatter,
        all_to_all,
        all_reduce_on_node,
        barrier,
    )
}


def groups(limit: timedelta) -> dict[str, Any]:
    """One for each kind: all kinds are under way together, and their time-outs pass together."""
    made = {}
    for kind in KINDS:
        small = gear_mpi.Options(segment_bytes=1 << 10) if kind == "all_reduce_on_node" else None
        made[kind] = dist.new_group(backend=gear_mpi.NAME, timeout=limit, pg_options=small)
        if small is not None:
            rehearse(made[kind], shares_memory=True)
    return made


def die(of_kinds: dict[str, Any]) -> None:
    """The victim's part, of which it does not come back."""
    for kind, group in of_kinds.items():
        if kind != "barrier":  # which has no middle: it does not come
            KINDS[kind](group)
    os.kill(os.getpid(), signal.SIGKILL)


def survive(of_kinds: dict[str, Any]) -> dict[str, str]:
    """What the others are told, by kind."""
    works = [
        # All that fits into MPI's buffers may go through: the barrier that follows does not.
        (kind, KINDS[kind](group), barrier(group))
        for kind, group in of_kinds.items()
    ]
    said = dict.fromkeys(of_kinds, "nothing")
    for kind, *both in works:
        try:
            for work in both:
                work.wait()
        except RuntimeError as error:
            said[kind] = str(error).splitlines()[0]
    return said
