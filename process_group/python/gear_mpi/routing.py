"""Which collective operations go by gloo instead of MPI."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo

from gear_mpi.errors import InvalidArgument
from gear_mpi.groups import backend_of, group_or_default
from gear_mpi.library import load
from gear_mpi.sizes import bytes_of, bytes_text

ROUTES = ("mpi", "gloo")
# Those of which every rank knows how many bytes they have: they may be routed by size.
SIZED = ("broadcast", "all_reduce", "reduce", "all_gather", "reduce_scatter")
OPERATIONS = (*SIZED, "gather", "scatter", "all_to_all", "barrier")
NO_LIMIT = (1 << 64) - 1

Ranges = dict[str, tuple[int, int]]  # operation -> those of [from, to) bytes go by gloo


def parse(text: str, name: str = "route") -> Ranges:
    """The ranges of all operations that ``all_reduce=gloo,broadcast>1M=gloo`` gives.

    Raises:
        InvalidArgument: a rule that is none, or two for the same.
    """
    rules: dict[tuple[str, bool], tuple[int, str]] = {}
    for rule in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"(\w+)\s*(?:>\s*(\w+)\s*)?=\s*(\w+)", rule)
        if match is None or match[1] not in OPERATIONS or match[3] not in ROUTES:
            raise InvalidArgument(
                f"[mpi] {name}={text!r}: {rule!r} is no rule; OPERATION=ROUTE and "
                f"OPERATION>BYTES=ROUTE are allowed, of {', '.join(OPERATIONS)} by mpi or gloo"
            )
        operation, limit, route = match[1], match[2], match[3]
        if limit is not None and operation not in SIZED:
            raise InvalidArgument(
                f"[mpi] {name}={text!r}: ranks of {operation} may have different numbers of bytes; "
                f"by size go {', '.join(SIZED)}: route {operation} as a whole"
            )
        key = (operation, limit is not None)
        if key in rules:
            raise InvalidArgument(
                f"[mpi] {name}={text!r}: {rule!r} is the second such rule for {operation}; one "
                "for all sizes and one for those above a limit are allowed"
            )
        rules[key] = (bytes_of(limit) if limit else 0, route)
    return {operation: _range(operation, rules) for operation in OPERATIONS}


def _range(operation: str, rules: dict[tuple[str, bool], tuple[int, str]]) -> tuple[int, int]:
    _, low = rules.get((operation, False), (0, "mpi"))
    limit, high = rules.get((operation, True), (0, low))
    if low == high:
        return (0, NO_LIMIT) if low == "gloo" else (0, 0)
    return (0, limit + 1) if low == "gloo" else (limit + 1, NO_LIMIT)


def text_of(ranges: Ranges) -> str:
    """The shortest rules that give `ranges`."""
    rules = []
    for operation, (begin, end) in ranges.items():
        if begin == end:
            continue
        rules.append(
            f"{operation}=gloo" if begin == 0 else f"{operation}>{bytes_text(begin - 1)}=gloo"
        )
        if end != NO_LIMIT:
            rules.append(f"{operation}>{bytes_text(end - 1)}=mpi")
    return ",".join(rules)


def default_route() -> str:
    """What ``GEAR_MPI_ROUTE`` says, in `text_of`'s words."""
    return text_of(parse(os.environ.get("GEAR_MPI_ROUTE") or "", "GEAR_MPI_ROUTE"))


def apply(backend: Any, ranges: Ranges, store: Any, timeout: timedelta) -> None:
    """Routes a backend's operations; collective where gloo is named for the first time."""
    if not backend.has_gloo and any(begin != end for begin, end in ranges.values()):
        gloo = ProcessGroupGloo(
            PrefixStore("gear_mpi/gloo", store), backend.rank(), backend.size(), timeout
        )
        backend.join_gloo(gloo)
    for operation, (begin, end) in ranges.items():
        backend.set_route(getattr(load().Kind, operation), begin, end)


def get_route(group: dist.ProcessGroup | None = None) -> str:
    """The rules of a group (None: the default one); ``""``: MPI carries everything."""
    backend = backend_of(group)
    return text_of({one: backend.route(getattr(load().Kind, one)) for one in OPERATIONS})


def set_route(route: str, group: dist.ProcessGroup | None = None) -> None:
    """Sets by which library the operations of a group (None: the default one) go from here on.

    It replaces all rules that there were. Collective over the group, which compares what its ranks
    ask for; no operation of the group may be under way. What gloo does not take is refused when it
    is called. See docs/process-group.md.

    Args:
        route: rules with commas between: ``all_reduce=gloo`` for all sizes, ``all_reduce>1M=gloo``
            for those above so many bytes; what no rule names goes by MPI. ``""``: no rules.

    Raises:
        InvalidArgument: a rule that is none, other rules on other ranks, or a group that gear_mpi
            does not carry.
    """
    found = group_or_default(group)
    backend = backend_of(found)
    try:
        ranges, wrong = parse(route), None
    except InvalidArgument as error:
        ranges, wrong = {}, error
    said: list[Any] = [None] * dist.get_world_size(found)
    dist.all_gather_object(said, None if wrong else text_of(ranges), group=found)
    if wrong is not None:
        raise wrong
    check_route(said)
    store = dist.distributed_c10d._get_process_group_store(found)
    apply(backend, ranges, store, backend.timeout)


def check_route(said: list[str | None]) -> None:
    """What the ranks of a group ask for is the same; None: something that is no route."""
    if any(one != said[0] for one in said):
        told = ", ".join(
            f"rank {i}: {'no rule' if one is None else repr(one)}" for i, one in enumerate(said)
        )
        raise InvalidArgument(
            f"[mpi] GEAR_MPI_ROUTE or route differs ({told}): give the same on all ranks"
        )
