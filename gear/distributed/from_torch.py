"""Groups whose ranks meet through torch.distributed: whole, along a mesh, in a grid."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gear.distributed.channel import Alone, Channel
from gear.distributed.from_environment import launcher_name
from gear.distributed.group import Group, check_transport, make_group, resolve_timeout
from gear.distributed.launch import Launch
from gear.distributed.torch_channel import (
    TorchChannel,
    default_store,
    own_store,
    rendezvous_store,
    served_by_agent,
)
from gear.errors import InvalidArgument


def group_at(launch: Launch, timeout_s: float, transport: str) -> Group:
    """The ranks of a launch that meet at a store."""
    store = rendezvous_store(launch.address, launch.port, launch.rank, launch.size, timeout_s)
    own = own_store(store, range(launch.size))
    server = None if served_by_agent() else 0
    channel = TorchChannel(own, launch.rank, launch.size, timeout_s, server)
    return make_group(channel, launcher=launch.launcher, transport=transport)


def group_from_torch(process_group: Any, timeout_s: float | None, transport: str) -> Group:
    dist = _initialised_torch()
    ranks = dist.get_process_group_ranks(process_group or dist.group.WORLD)
    return _group_of(ranks, timeout_s, transport)


def group_from_mesh(mesh: Any, dim: str, timeout_s: float | None, transport: str) -> Group:
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
    replicas = _group_of(across.tolist(), timeout_s, transport)
    return _group_of(along.tolist(), timeout_s, transport, replicas)


def group_from_mpu(mpu: Any, timeout_s: float | None, transport: str) -> Group:
    dist = _initialised_torch()
    ranks = dist.get_process_group_ranks(mpu.get_data_parallel_group())
    grid = _from_all([mpu.get_data_parallel_rank(), ranks], resolve_timeout(timeout_s))
    across = [rank for rank, (place, _) in enumerate(grid) if place == ranks.index(dist.get_rank())]
    owners = [min(r for r, (place, _) in enumerate(grid) if place == p) for p in range(len(ranks))]
    if any(row[1] != owners for rank, row in enumerate(grid) if rank in owners):
        raise InvalidArgument(
            f"[group] ranks {owners}, the first of each data-parallel rank, are no data-parallel "
            "group of this grid: use Group.from_mesh"
        )
    replicas = _group_of(across, timeout_s, transport)
    return _group_of(ranks, timeout_s, transport, replicas)


def _group_of(
    ranks: Sequence[int],
    timeout_s: float | None,
    transport: str,
    replicas: Group | None = None,
) -> Group:
    """The group of these ranks of torch.distributed, this one among them."""
    import torch.distributed as dist

    check_transport(transport)
    wait_s = resolve_timeout(timeout_s)
    if dist.get_rank() not in ranks:
        raise InvalidArgument(
            f"[group] rank {dist.get_rank()} is not in the process group of ranks {list(ranks)}: "
            "only its ranks may call this"
        )
    channel: Channel = Alone(wait_s)
    if len(ranks) > 1:
        store = own_store(default_store(), ranks)
        server = ranks.index(0) if 0 in ranks and not served_by_agent() else None
        rank = ranks.index(dist.get_rank())
        channel = TorchChannel(store, rank, len(ranks), wait_s, server)
    return make_group(
        channel,
        launcher=launcher_name(dist.get_world_size()),
        transport=transport,
        replicas=replicas,
    )


def _from_all(value: Any, timeout_s: float) -> list[Any]:
    """What every rank of torch.distributed gave, without a connection between all of them."""
    from datetime import timedelta

    import torch.distributed as dist

    size = dist.get_world_size()
    store = own_store(default_store(), [-1, size])
    store.set(f"{dist.get_rank()}", json.dumps(value))
    keys = [f"{rank}" for rank in range(size)]
    store.wait(keys, timedelta(seconds=timeout_s))
    return [json.loads(text) for text in store.multi_get(keys)]


def _initialised_torch() -> Any:
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        raise InvalidArgument(
            "[group] torch.distributed is not initialised: call init_process_group before, or "
            "Group.from_env(), which needs it not"
        )
    return dist
