"""One emulated group: its real members, their own group, and the curves of its operations."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from gear.emu import gpu
from gear.emu.events import Dead, Jitter, LinkChange, Slow
from gear.emu.job import Job
from gear.emu.library import load
from gear.emu.models.curve import BASES
from gear.emu.models.model import Model, ask
from gear.emu.models.shape import Shape
from gear.emu.present import current, own_rank
from gear.emu.report import write_at_exit
from gear.emu.steps import count_optimisers
from gear.errors import InvalidArgument

BITS = {"nvlink": 1, "nic": 2}  # what the groups of a process share, as the library counts links
BOOT = Path("/proc/sys/kernel/random/boot_id")  # whose processes have one clock


def create(given: Any, pg_options: Any) -> Any:
    """The backend of one group; torch calls it on the real ranks of the group."""
    if pg_options is not None:
        raise InvalidArgument(f"[emu] pg_options of {type(pg_options).__name__}: gear_emu has none")
    if os.environ.get("TORCH_DIST_INIT_BARRIER") == "1":
        raise InvalidArgument(
            "[emu] TORCH_DIST_INIT_BARRIER=1 has torch wait for all ranks, of which most are"
            " emulated: leave it out"
        )
    if os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        raise InvalidArgument(
            "[emu] TORCH_DISTRIBUTED_DEBUG=DETAIL has torch make a group of all ranks by gloo, of"
            " which most are emulated: leave it out, or give INFO"
        )
    count_optimisers()
    write_at_exit(own_rank(current()))
    ranks = list(given.global_ranks_in_group) or list(range(given.group_size))
    return make(current(), ranks, given.group_rank, given.store, given.timeout)


def make(job: Job, ranks: Sequence[int], own: int, store: Any, timeout: timedelta) -> Any:
    module = load()
    real = [member for member, rank in enumerate(ranks) if rank in job.real]
    on_host, has_one_clock = None, True
    index, of_real = real.index(own), _part(store)
    if len(real) > 1:
        on_host, has_one_clock = _meet(index, len(real), of_real, timeout)
    shape = job.shape_of(ranks)
    uses = {"nvlink": shape.per_node > 1, "nic": shape.nodes > 1}
    changes = changes_of(job)
    plan = module.Plan(
        links=sum(BITS[link] for link, used in uses.items() if used),
        ranks=len(ranks),
        copies=_copies(job, ranks, real, own),
        dead=[(e.rank, e.call) for e in job.events if isinstance(e, Dead) and e.rank in ranks],
        changes=[
            (from_s, next((BITS[link] for link in BITS if uses[link] and times.get(link) == 0), 0))
            for from_s, times in changes
        ],
        seed=job.seed,
        has_one_clock=has_one_clock,
        ask=_asker(
            module,
            job,
            shape,
            [{}, *({link: times[link] for link in times if uses[link]} for _, times in changes)],
        ),
    )

    def split(of: Any, members: list[int], wait: timedelta) -> Any:
        if own not in members:
            return None
        return make(job, [ranks[member] for member in members], members.index(own), of, wait)

    return module.Group(
        world_ranks=list(ranks),
        real=real,
        own=own,
        on_host=on_host,
        plan=plan,
        on_gpus=module.OnGpus(
            load=gpu.kernels,
            connect=lambda: gpu.connected(of_real, index, len(real), timeout),
            footprints=gpu.footprints(job.loaded_links()),
            refused=gpu.refused(job.events, has_others=len(real) > 1),
        ),
        split=split,
        options=module.Options(timeout_s=timeout.total_seconds()),
    )


def _part(store: Any) -> Any:
    from torch._C._distributed_c10d import PrefixStore

    return PrefixStore("gear_emu", store)


def _meet(index: int, size: int, store: Any, timeout: timedelta) -> tuple[Any, bool]:
    """The group of the real members for tensors of the host, and whether they have one clock."""
    from torch._C._distributed_c10d import ProcessGroupGloo

    store.set(f"boot/{index}", BOOT.read_text())
    boots = {store.get(f"boot/{one}") for one in range(size)}
    return ProcessGroupGloo(store, index, size, timeout), len(boots) == 1


def _copies(
    job: Job, ranks: Sequence[int], real: Sequence[int], own: int
) -> list[tuple[int, float, list[tuple[float, float, float]]]]:
    """The members that are copies of this process and compute longer than it."""
    is_real = set(real)
    emulated = [member for member in range(len(ranks)) if member not in is_real]
    found = []
    for place, member in enumerate(emulated):
        if real[place % len(real)] != own:
            continue
        rank = ranks[member]
        of_rank = [event for event in job.events if getattr(event, "rank", rank) in (rank, None)]
        sigmas = [event.sigma for event in of_rank if isinstance(event, Jitter)]
        slow = [(e.by, e.from_s, e.to_s) for e in of_rank if isinstance(e, Slow)]
        if sigmas or slow:
            found.append((rank, sum(sigma**2 for sigma in sigmas) ** 0.5, slow))
    return found


def changes_of(job: Job) -> list[tuple[float, dict[str, float]]]:
    """When links change, in time, and what part of its bandwidth each has from then on."""
    changes: list[tuple[float, dict[str, float]]] = []
    events = [event for event in job.events if isinstance(event, LinkChange)]
    for event in sorted(events, key=lambda one: one.from_s):
        before = changes[-1][1] if changes else {}
        changes.append((event.from_s, {**before, event.link: event.times}))
    return changes


def _asker(
    module: Any, job: Job, shape: Shape, parts: Sequence[dict[str, float]]
) -> Callable[[str, int], Any]:
    """Asks the model, once an operation; what it says as the library reads it. `parts`: of the
    bandwidth of links, after so many changes."""
    asked: Model = job.loaded_model()
    links = job.loaded_links()

    def curve(operation: str, changes: int) -> Any:
        if shape.ranks == 1:
            return module.Curve([0], [0.0], [BASES.index("given")])
        points = ask(asked, operation, shape, links.with_bandwidths(parts[changes])).points
        return module.Curve(
            [point.bytes for point in points],
            [point.seconds for point in points],
            [BASES.index(point.basis) for point in points],
        )

    return curve
