"""One rank of groups in which something goes wrong: `failing.py FOLDER`, started by mpirun. Writes
what each case raised to FOLDER/RANK.json; a group that has failed is not used again. Rank 2 is
killed at the end."""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).parents[2]))

import gear_mpi
from gear_mpi.groups import backend_of
from process_group.tests import killed
from process_group.tests.rehearsal import fail_after, rehearse

LIMIT = timedelta(seconds=2)


def absent(group: Any, rank: int) -> None:
    """Rank 1 is elsewhere, in an operation of several rounds."""
    if rank != 1:
        dist.all_reduce(torch.ones(100_000), group=group)


def absent_of_small(group: Any, rank: int) -> None:
    if rank != 1:
        dist.all_reduce(torch.ones(1), group=group)


def absent_of_broadcast(group: Any, rank: int) -> None:
    if rank != 0:
        dist.broadcast(torch.ones(1), 0, group=group)


def absent_of_barrier(group: Any, rank: int) -> None:
    if rank != 2:
        gear_mpi.monitored_barrier(group)


def absent_of_barrier_in_sub_group(_: Any, rank: int) -> None:
    """Rank 2 of the world is the group's rank 1. Rank 0 is not in it, and is told so."""
    group = dist.new_group([1, 2], backend=gear_mpi.NAME, timeout=timedelta(seconds=60))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if rank != 2:
            gear_mpi.monitored_barrier(group, timeout=LIMIT, wait_all_ranks=True)
    outside = any("does not belong to" in str(one.message) for one in warned)
    assert outside == (rank == 0)


def other_call_in_sub_group(_: Any, rank: int) -> None:
    group = dist.new_group([1, 2], backend=gear_mpi.NAME)
    if rank == 1:
        gear_mpi.monitored_barrier(group)
    elif rank == 2:
        dist.all_reduce(torch.ones(3), group=group)


def other_length_in_sub_group(_: Any, rank: int) -> None:
    group = dist.new_group([1, 2], backend=gear_mpi.NAME)
    if rank == 1:
        dist.recv(torch.ones(3), 2, group=group)
    elif rank == 2:
        dist.send(torch.ones(2), 1, group=group)


def nobody_waits(group: Any, rank: int) -> None:
    """The thread finds out; whoever asks later is told."""
    if rank != 1:
        dist.all_reduce(torch.ones(1000), group=group, async_op=True).get_future().wait()


def late_once(group: Any, rank: int) -> None:
    """A rank that comes after it was asked for is asked for again when it is missing later."""
    if rank == 1:
        time.sleep(0.8)
    work = dist.broadcast(torch.ones(1), 1, group=group, async_op=True)
    work.wait(timedelta(seconds=10 if rank == 1 else 0.3))
    absent_of_small(group, rank)


def far_ahead(_: Any, rank: int) -> None:
    """Rank 2 is missing in a call whose kind rank 0 has forgotten, so many has it begun since."""
    group = dist.new_group(backend=gear_mpi.NAME, timeout=timedelta(seconds=60))
    begun = torch.ones(1)
    if rank == 2:
        return
    if rank == 1:
        dist.recv(begun, 0)
    work = dist.broadcast(torch.ones(1), 0, group=group, async_op=True)
    if rank == 0:
        for _ in range(1024):
            dist.all_reduce(torch.ones(1), group=group, async_op=True)
        dist.send(begun, 1)
    work.wait(timedelta(seconds=0.5 if rank == 1 else 60))


def absent_on_node(group: Any, rank: int) -> None:
    """Rank 1 does not put down its part of what goes by memory of the node."""
    rehearse(group, shares_memory=True)
    total = torch.ones(100_000)
    dist.all_reduce(total, group=group)
    assert (total == 3).all()
    absent(group, rank)


def no_memory_on_node(group: Any, rank: int) -> None:
    """Rank 0 may not make what all would share; sums go by messages."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if rank == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    rehearse(group, shares_memory=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not backend_of(group).shares_memory
    total = torch.ones(100_000)
    dist.all_reduce(total, group=group)
    assert (total == 3).all()


def lost_gpu(group: Any, rank: int) -> None:
    """Rank 1 cannot copy any more, and its system has much to say of it."""
    rehearse(group, shares_memory=True)
    if rank == 1:
        fail_after(1)
    dist.all_reduce(torch.ones(100_000), group=group)


def refused_part(group: Any, rank: int) -> None:
    """A part fails at once, while one before it is under way: those after it are not begun."""
    parts = [torch.ones(300_000), *(torch.ones(10 if rank == 1 else 12) for _ in range(20))]
    if rank == 1:
        dist.barrier()  # what it receives first has been sent
    try:
        work = group.allreduce_coalesced(parts, dist.AllreduceCoalescedOptions())
    except RuntimeError as error:
        raise RuntimeError(f"not begun: {error}") from None
    finally:
        del parts
    if rank != 1:
        dist.barrier()
    work.wait()


def other_call(group: Any, rank: int) -> None:
    if rank == 1:
        dist.broadcast(torch.ones(10), 0, group=group)
    else:
        dist.all_reduce(torch.ones(10), group=group)


def other_size_of_large(group: Any, rank: int) -> None:
    """So large that Open MPI copies it from one process to another, all of it."""
    dist.all_reduce(torch.ones(8192 if rank == 1 else 16384), group=group)


def failed_before(group: Any, rank: int) -> None:
    try:
        absent(group, rank)
    except RuntimeError:
        dist.barrier(group=group)


def no_message(group: Any, rank: int) -> None:
    """A message that does not come ends nothing but its own recv."""
    words = None
    if rank == 0:
        try:
            dist.irecv(torch.ones(3), 1, group=group, tag=7).wait(timedelta(seconds=0.5))
        except RuntimeError as error:
            words = error
    total = torch.ones(3)
    dist.all_reduce(total, group=group)
    assert total.tolist() == [3, 3, 3]
    if words is not None:
        raise words


def other_length(group: Any, rank: int) -> None:
    if rank == 0:
        dist.recv(torch.ones(3), 1, group=group)
    elif rank == 1:
        dist.send(torch.ones(2), 0, group=group)


def other_length_of_large(group: Any, rank: int) -> None:
    """The message after the one that is too long is received."""
    if rank == 1:
        dist.send(torch.ones(100_000), 0, group=group)
        dist.send(torch.full((100_000,), 2.0), 0, group=group)
    elif rank == 0:
        words = None
        try:
            dist.recv(torch.ones(1000), 1, group=group)
        except RuntimeError as error:
            words = error
        second = torch.zeros(100_000)
        dist.recv(second, 1, group=group)
        assert (second == 2).all()
        assert words is not None
        raise words


def in_order(group: Any, rank: int) -> None:
    """Of receives that wait for the same messages, the first takes the first."""
    if rank == 1:
        for i in range(4):
            dist.send(torch.full((20_000,), float(i)), 0, group=group, tag=3)
    elif rank == 0:
        come = [torch.empty(20_000) for _ in range(4)]
        works = [
            dist.irecv(tensor, None if i % 2 else 1, group=group, tag=3)
            for i, tensor in enumerate(come)
        ]
        for work in works:
            work.wait()
        assert [tensor.unique().tolist() for tensor in come] == [[0], [1], [2], [3]]
    dist.barrier(group=group)


def other_route(group: Any, rank: int) -> None:
    gear_mpi.set_route("all_reduce=gloo" if rank == 1 else "", group)


def wrong_route(group: Any, rank: int) -> None:
    gear_mpi.set_route("all_reduce=tcp" if rank == 1 else "", group)


def by_both_routes(group: Any, rank: int) -> None:
    """Of one group, what is large goes by gloo."""
    gear_mpi.set_route("all_reduce>1K=gloo", group)
    for size in (10, 1000, 10):
        total = torch.ones(size)
        dist.all_reduce(total, group=group)
        assert (total == 3).all()


CASES: dict[str, Callable[[Any, int], None]] = {
    function.__name__: function
    for function in (
        absent,
        absent_of_small,
        absent_of_broadcast,
        absent_of_barrier,
        absent_of_barrier_in_sub_group,
        other_call_in_sub_group,
        other_length_in_sub_group,
        nobody_waits,
        late_once,
        far_ahead,
        absent_on_node,
        no_memory_on_node,
        lost_gpu,
        refused_part,
        other_call,
        other_size_of_large,
        failed_before,
        no_message,
        other_length,
        other_length_of_large,
        in_order,
        other_route,
        wrong_route,
        by_both_routes,
    )
}


def main() -> None:
    dist.init_process_group(gear_mpi.NAME)
    rank = dist.get_rank()
    meeting = dist.new_group(backend="gloo")
    said = {}
    for name, call in CASES.items():
        group = dist.new_group(backend=gear_mpi.NAME, timeout=LIMIT)
        said[name] = ""
        try:
            call(group, rank)
        except (RuntimeError, ValueError) as error:
            said[name] = str(error).splitlines()[0]
        dist.barrier(group=meeting)
    of_kinds = killed.groups(LIMIT)
    survivors = dist.new_group([0, 1], backend="gloo")
    file = Path(sys.argv[1], f"{rank}.json")
    dist.barrier(group=meeting)
    if rank == killed.VICTIM:
        file.write_text(json.dumps(said))
        killed.die(of_kinds)
    for kind, words in killed.survive(of_kinds).items():
        said[f"killed in {kind}"] = words
    file.write_text(json.dumps(said))
    dist.barrier(group=survivors)


if __name__ == "__main__":
    main()
