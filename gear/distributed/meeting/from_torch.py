"""Ranks that meet through torch.distributed: all of them, along a mesh, in a grid."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gear.distributed.calls import STORE_WAIT_S, Late, in_time
from gear.distributed.channels.base import Alone, Channel
from gear.distributed.channels.connect import connect
from gear.distributed.channels.gloo import GlooChannel
from gear.distributed.channels.roster import SILENT, said_by_all, wait_for_places
from gear.distributed.meeting.launch import Launch, is_in_shell, launcher_name
from gear.distributed.meeting.meeting import Meeting, given_to_all
from gear.distributed.meeting.meeting_point import (
    default_store,
    launch_store,
    own_store,
    run_of,
    served_by_agent,
    take_place,
    time_to_meet,
)
from gear.distributed.same import check_same, named
from gear.distributed.timeout import Limit
from gear.distributed.waiting import Waiting
from gear.errors import InvalidArgument, TransportError

SHELL_S = 2.0  # until something is said of a wait in what may be a shell of Slurm
STORE = "the store of torch.distributed"


def meet_at_store(launch: Launch, timeout_s: float, transport: str) -> Meeting:
    """The ranks of a launch that meet at a store."""
    meeting = time_to_meet(timeout_s)
    address = f"{launch.address}:{launch.port}"
    server = None if served_by_agent() else 0
    who = f"{'torchrun' if server is None else 'rank 0'}, which serves {address}"
    if launch.rank == server:
        who = "the other ranks"
    with waiting_for(launch, who, timeout_s) as waiting:
        store = launch_store(launch, meeting)
        own = own_store(store, range(launch.size))
        try:
            run = run_of(store, meeting.end)
            given = given_to_all(transport, timeout_s)
            take_place(own, launch.rank, launch.size, meeting.end, address, run, given)
        except (Late, RuntimeError) as error:
            raise _silent(address, error) from error
        place = _Place(own, launch.rank, launch.size, server, launch.address)
        channel = _connected(place, meeting, waiting, given)
    return Meeting(channel, launch.launcher)


@dataclass(frozen=True)
class _Place:
    """Of a rank that has one in a store.

    Attributes:
        server: the rank whose process serves the store; None: none of them.
        master: by which the other machines reach that of rank 0; empty: nothing says.
    """

    store: Any
    rank: int
    size: int
    server: int | None
    master: str


def _connected(
    place: _Place, meeting: Limit, waiting: Waiting, given: Mapping[str, Any]
) -> Channel:
    """The channel of the ranks that come to the store."""
    at = (place.store, place.rank, place.size)
    ranks = GlooChannel(*at, given["timeout_s"], server=place.server)
    with ranks.doing("Group"):
        said = ranks.meet(meeting, waiting)
        with ranks.refusing():
            check_same("[group] Group", [one["given"] for one in said])
            return connect(ranks, given["transport"], place.master, meeting)


def waiting_for(launch: Launch, who: str, most_s: float | None) -> Waiting:
    """Of the ranks of a launch."""
    quiet_s = SHELL_S if is_in_shell(os.environ) else None
    return Waiting(launch.mine, who, launch.advice, most_s=most_s, quiet_s=quiet_s)


def meet_by_torch(process_group: Any, timeout_s: float, transport: str) -> Meeting:
    """The ranks of a process group; None: all."""
    dist = _initialised_torch()
    if process_group is None:
        process_group = dist.group.WORLD
    if process_group == dist.GroupMember.NON_GROUP_MEMBER:
        raise InvalidArgument(
            f"[group] Group.from_torch: rank {dist.get_rank()} is not in the process group: only "
            "its ranks may call this"
        )
    return _meeting_of(dist.get_process_group_ranks(process_group), timeout_s, transport)


def meet_along_mesh(mesh: Any, dim: str, timeout_s: float, transport: str) -> Meeting:
    """The axis `dim` of a DeviceMesh, with the other axes as replicas."""
    _initialised_torch()
    names = tuple(mesh.mesh_dim_names or ())
    if dim not in names:
        raise InvalidArgument(
            f"[group] mesh axis {dim!r}: this mesh has {', '.join(map(repr, names)) or 'no names'}"
            "; name the axis whose ranks train on different batches"
        )
    place = mesh.get_coordinate()
    if place is None:
        raise InvalidArgument("[group] this rank is not in the mesh: give it a group of its own")
    axis = names.index(dim)
    along = mesh.mesh[tuple(slice(None) if i == axis else c for i, c in enumerate(place))]
    across = mesh.mesh.select(axis, place[axis]).flatten()
    replicas = _meeting_of(across.tolist(), timeout_s, transport)
    return _meeting_of(along.tolist(), timeout_s, transport, replicas)


def meet_in_grid(mpu: Any, timeout_s: float, transport: str) -> Meeting:
    """The data-parallel ranks of a DeepSpeed or Megatron grid, with the others as replicas."""
    dist = _initialised_torch()
    ranks = dist.get_process_group_ranks(mpu.get_data_parallel_group())
    grid = _from_all([mpu.get_data_parallel_rank(), ranks], timeout_s)
    across = [rank for rank, (place, _) in enumerate(grid) if place == ranks.index(dist.get_rank())]
    owners = [min(r for r, (place, _) in enumerate(grid) if place == p) for p in range(len(ranks))]
    if any(row[1] != owners for rank, row in enumerate(grid) if rank in owners):
        raise InvalidArgument(
            f"[group] the first ranks of each data-parallel place, {owners}, do not form a "
            "data-parallel group of this grid: use Group.from_mesh"
        )
    replicas = _meeting_of(across, timeout_s, transport)
    return _meeting_of(ranks, timeout_s, transport, replicas)


def _meeting_of(
    ranks: Sequence[int], timeout_s: float, transport: str, replicas: Meeting | None = None
) -> Meeting:
    """The meeting of these ranks of torch.distributed, this one among them."""
    import torch.distributed as dist

    if dist.get_rank() not in ranks:
        raise InvalidArgument(
            f"[group] rank {dist.get_rank()} is not in the process group of ranks {list(ranks)}: "
            "only its ranks may call this"
        )
    channel: Channel = Alone(timeout_s)
    if len(ranks) > 1:
        store = own_store(default_store(), ranks)
        server = ranks.index(0) if 0 in ranks and not served_by_agent() else None
        rank = ranks.index(dist.get_rank())
        meeting = Limit.of(timeout_s)
        with Waiting.of_connected(rank, len(ranks), timeout_s) as waiting:
            try:
                given = given_to_all(transport, timeout_s)
                take_place(store, rank, len(ranks), meeting.end, STORE, None, given)
            except (Late, RuntimeError) as error:
                raise _silent(STORE, error) from error
            place = _Place(store, rank, len(ranks), server, os.environ.get("MASTER_ADDR", ""))
            channel = _connected(place, meeting, waiting, given)
    return Meeting(channel, launcher_name(dist.get_world_size()), replicas)


def _from_all(value: Any, timeout_s: float) -> list[Any]:
    """What every rank of torch.distributed gave, without a connection between all of them."""
    import torch.distributed as dist

    rank, size = dist.get_rank(), dist.get_world_size()
    store = own_store(default_store(), [-1, size])
    limit = Limit.of(timeout_s)
    said = json.dumps(value)
    try:
        with Waiting.of_connected(rank, size, timeout_s) as waiting:
            in_time(limit.end, lambda: store.set(f"rank {rank}", said), SILENT)
            absent = wait_for_places(store, size, limit.end, waiting.tell)
        if absent:
            raise TransportError(
                f"[transport] {named(absent)} of torch.distributed did not come within "
                f"{timeout_s:g} s: all of them make this group; look at their output"
            )
        until = max(limit.end, time.monotonic() + STORE_WAIT_S)
        return in_time(until, lambda: said_by_all(store), SILENT)
    except TransportError:
        raise
    except (Late, RuntimeError) as error:
        raise _silent(STORE, error) from error


def _silent(place: str, error: Exception) -> TransportError:
    reason = next(iter(str(error).splitlines()), "")
    return TransportError(
        f"[transport] the ranks' meeting point, {place}, was lost: {reason}; look at the output of "
        "rank 0"
    )


def _initialised_torch() -> Any:
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        raise InvalidArgument(
            "[group] torch.distributed is not initialised: call init_process_group first, or use "
            "Group.from_env(), which does not need it"
        )
    return dist
