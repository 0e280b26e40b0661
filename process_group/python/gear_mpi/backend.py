"""The backend `gear_mpi` of torch.distributed."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from gear_mpi import NAME
from gear_mpi.compression import KINDS, check_compression, default_compression
from gear_mpi.data_parallel import name_backend
from gear_mpi.errors import InvalidArgument, TransportError
from gear_mpi.groups import group_or_default
from gear_mpi.library import load
from gear_mpi.log import begin as begin_log
from gear_mpi.routing import apply as apply_route
from gear_mpi.routing import check_route, default_route, parse, text_of
from gear_mpi.sizes import bytes_of

DEFAULT_SEGMENT = "1M"


@dataclass(frozen=True)
class Options:
    """What may be given as `pg_options` of ``init_process_group`` and ``new_group``.

    Attributes:
        segment_bytes: collective operations send pieces of at most so many bytes; the next ones are
            on their way while one is reduced. The same on all ranks. None: ``GEAR_MPI_SEGMENT``,
            else 1M.
        compression: how sums of float32 travel at first, as in `set_compression`. The same on all
            ranks. None: ``GEAR_MPI_COMPRESSION``, else ``"none"``.
        route: which operations go by gloo at first, as in `set_route`. The same on all ranks. None:
            ``GEAR_MPI_ROUTE``, else none.
    """

    segment_bytes: int | None = None
    compression: str | None = None
    route: str | None = None

    def resolved(self) -> int:
        if self.segment_bytes is not None:
            given, value = str(self.segment_bytes), self.segment_bytes
        else:
            given = os.environ.get("GEAR_MPI_SEGMENT") or DEFAULT_SEGMENT
            value = bytes_of(given)
        if not 64 <= value < 1 << 31:
            raise InvalidArgument(
                f"[mpi] GEAR_MPI_SEGMENT={given}: 64 bytes to less than 2G are allowed"
            )
        return value // 64 * 64


def monitored_barrier(
    group: dist.ProcessGroup | None = None,
    timeout: timedelta | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """As ``torch.distributed.monitored_barrier``, which torch allows with gloo alone.

    Returns when all ranks of the group have called it. On a rank that is not in the group it warns,
    as torch's operations do, and returns.

    Args:
        timeout: None: that of the group.
        wait_all_ranks: changes nothing, and is there for programs that give it to torch's: all
            missing ranks are named in either case.

    Raises:
        RuntimeError: ranks did not come within `timeout`; the message names them, on every rank
            that did.
    """
    if dist.distributed_c10d._rank_not_in_group(group):
        dist.distributed_c10d._warn_not_in_group("monitored_barrier")
        return
    if timeout is None:
        timeout = timedelta(milliseconds=-1)
    group_or_default(group).monitored_barrier(timeout, wait_all_ranks)


def create(given: Any, pg_options: Options | None) -> Any:
    """The backend of one group; torch calls it on the ranks of the group."""
    if pg_options is not None and not isinstance(pg_options, Options):
        raise InvalidArgument(
            f"[mpi] pg_options of {type(pg_options).__name__}: gear_mpi.Options are allowed"
        )
    wanted = pg_options or Options()
    segment_bytes = wanted.resolved()
    compression = check_compression(wanted.compression or default_compression())
    route = default_route() if wanted.route is None else text_of(parse(wanted.route))
    name_backend(NAME)
    module = load()
    world_rank, world_size = module.world()
    _check_launch(given.group_size, world_size)
    begin_log(module, world_rank)
    timeout_s = given.timeout.total_seconds()
    own = {"world_rank": world_rank, "segment_bytes": segment_bytes, "gear": module.version}
    own["compression"] = compression
    own["route"] = route
    told = _exchange(given.store, given.group_rank, given.group_size, own, timeout_s)
    _check(told, world_size)
    check_route([one["route"] for one in told])
    cuda = _cuda_way()
    options = module.Options(
        timeout_s=timeout_s,
        segment_bytes=segment_bytes,
        takes_gpus=cuda != "",
        shares_memory=cuda != "messages",
    )
    places = [one["world_rank"] for one in told]
    backend = module.Backend(given.group_rank, places, str(given.group_id), options)
    backend.compression = getattr(module.Compression, KINDS[compression])
    apply_route(backend, parse(route), given.store, given.timeout)
    return backend


def _cuda_way() -> str:
    """How tensors of GPUs go. With "" they are refused: where torch has NCCL, they are likely to
    be an oversight."""
    given = os.environ.get("GEAR_MPI_CUDA") or ""
    if given not in ("", "staged", "messages"):
        raise InvalidArgument(
            f"[mpi] GEAR_MPI_CUDA={given!r}: 'staged', 'messages' or nothing is allowed"
        )
    return given or ("" if dist.is_nccl_available() else "staged")


def _exchange(
    store: Any, rank: int, size: int, own: dict[str, Any], timeout_s: float
) -> list[dict[str, Any]]:
    """What all ranks say, by rank. The last one to come collects it: so many reads in all, not
    their square."""
    end = time.monotonic() + timeout_s
    store.set(f"gear_mpi/{rank}", json.dumps(own))
    if store.add("gear_mpi/here", 1) == size:
        all_said = [store.get(f"gear_mpi/{one}").decode() for one in range(size)]
        store.set("gear_mpi/all", json.dumps(all_said))
    pause_s = 0.001
    while not store.check(["gear_mpi/all"]):
        if time.monotonic() > end:
            missing = [one for one in range(size) if not store.check([f"gear_mpi/{one}"])]
            raise TransportError(
                f"[mpi] ranks {missing} of {size} did not come to make a process group within "
                f"{timeout_s:g} s: look at their output, or give a longer timeout"
            )
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.1)
    return [json.loads(said) for said in json.loads(store.get("gear_mpi/all"))]


def _check_launch(group_size: int, world_size: int) -> None:
    """Before other ranks are waited for, which MPI does not reach from here."""
    if world_size < group_size:
        raise InvalidArgument(
            f"[mpi] the group has {group_size} ranks, and MPI sees {world_size} in this process: "
            "start the ranks with the launcher of the MPI that gear_mpi was built for (mpirun, or "
            "srun --mpi=pmix or pmi2), not with torchrun"
        )


def _check(told: list[dict[str, Any]], world_size: int) -> None:
    places = [one["world_rank"] for one in told]
    if len(set(places)) < len(places):  # several worlds of as many ranks
        raise InvalidArgument(
            f"[mpi] the group has {len(places)} ranks, of which some are rank {_twice(places)} of "
            f"the {world_size} that MPI has started: start all of them with one mpirun or srun"
        )
    for name, what in [
        ("segment_bytes", "segments of {} bytes"),
        ("compression", "compression {}"),
        ("gear", "GEAR {}"),
    ]:
        values = [one[name] for one in told]
        for rank, value in enumerate(values):
            if value != values[0]:
                raise InvalidArgument(
                    f"[mpi] rank 0 has {what.format(values[0])} and rank {rank} "
                    f"{what.format(value)}: they must be the same on all ranks"
                )


def _twice(places: list[int]) -> int:
    return next(place for place in places if places.count(place) > 1)
