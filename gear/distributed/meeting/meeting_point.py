"""The store at which the ranks of a launch meet, and who takes which place.

It is torch.distributed's, or GEAR's own where there is no torch.

What stands in it, below ``gear/`` and the restart's number:

    run              the run that the store is of (RunIdentity of rank 0)
    RANKS/N/rank R   who has taken the place of rank R in the Nth group of these ranks
    RANKS/N/failed   why that group has ended, for its ranks to read
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from typing import Any

from gear.distributed.calls import STORE_WAIT_S, Late, in_time
from gear.distributed.channels.roster import POLL_S, SILENT, pause_of, tell_failed
from gear.distributed.meeting.launch import Launch
from gear.distributed.meeting.run_identity import RunIdentity, attempt
from gear.distributed.meeting.store import Store, StoreServer, part_of
from gear.distributed.process_life import keep_for_ever
from gear.distributed.timeout import SLICE_S, Limit
from gear.errors import InvalidArgument, TransportError

DECLINE_S = 20.0  # for the others to hear that this process does not come
AGAIN_S = 0.2  # between two attempts to reach rank 0


def served_by_agent() -> bool:
    """Whether torchrun's own process serves the store at MASTER_ADDR."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def default_store() -> Any:
    """The store of torch.distributed's own groups."""
    from torch.distributed import distributed_c10d

    return distributed_c10d._get_default_store()


# ---- parts of a store ----

_made: Counter[tuple[int, ...]] = Counter()


def own_store(store: Any, ranks: Sequence[int]) -> Any:
    """A part of `store` for one group of these ranks, which all of them make in the same order."""
    key = tuple(ranks)
    _made[key] += 1
    return _part(store, ranks, _made[key])


def _part(store: Any, ranks: Sequence[int], number: int) -> Any:
    names = hashlib.sha256(repr(tuple(ranks)).encode()).hexdigest()[:16]
    return part_of(store, f"gear/{attempt()}/{names}/{number}")


# ---- the store of a launch ----


def time_to_meet(seconds: float) -> Limit:
    """From when torch is imported, which takes seconds on a busy machine."""
    if _with_torch():
        import torch.distributed  # noqa: F401

    return Limit.of(seconds)


_stores: dict[tuple[str, int], Any] = {}  # the address can be served once


def launch_store(launch: Launch, limit: Limit) -> Any:
    """The store at the address of `launch`: torchrun's, else rank 0 serves it.

    A later init_process_group at the same address shares it.

    Raises:
        InvalidArgument: the address belongs to another run; names its rank 0.
        TransportError: no rank 0 within `limit`; says what is there instead.
    """
    key = (launch.address, launch.port)
    if key not in _stores:
        serves = launch.rank == 0 and not served_by_agent()
        try:
            store = _open(launch, serves, limit.end)
            _check_run(store, launch, limit.end)
        except Late as late:
            raise _unreachable(launch, serves, limit.seconds, late.reason) from None
        except (RuntimeError, ValueError, OSError) as error:
            if isinstance(error, InvalidArgument):
                raise
            if serves:
                _refuse_where_another_serves(launch)
            raise _unreachable(launch, serves, limit.seconds, _first_line(error)) from error
        _stores[key] = store
    return _stores[key]


def _with_torch() -> bool:
    return find_spec("torch") is not None


def _open(launch: Launch, serves: bool, deadline: float) -> Any:
    _reach(launch, deadline, listens=not serves)
    left = max(deadline - time.monotonic(), 0.001)
    return in_time(
        deadline,
        partial(_store_at, launch, serves, left),
        "it does not reach itself there: look whether MASTER_ADDR names this host"
        if serves
        else SILENT,
    )


def _store_at(launch: Launch, serves: bool, wait_s: float) -> Any:
    """torch's, which a later init_process_group shares, or GEAR's own where there is no torch."""
    if not _with_torch():
        server = StoreServer(launch.address, launch.port) if serves else None
        return Store(launch.address, launch.port, wait_s, server)
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore(
        launch.address,
        launch.port,
        launch.size,
        is_master=serves,
        timeout=timedelta(seconds=wait_s),
        wait_for_workers=False,
        multi_tenant=True,
    )


def _reach(launch: Launch, deadline: float, *, listens: bool) -> None:
    """Returns when the address has a host and, where `listens`, something listens there."""
    reason = "it does not answer"
    while True:
        try:
            if listens:
                wait_s = max(min(1.0, deadline - time.monotonic()), 0.001)
                place = (launch.address, launch.port)
                in_time(deadline, partial(_knock, place, wait_s), reason)
            else:
                in_time(deadline, lambda: socket.getaddrinfo(launch.address, launch.port), reason)
            return
        except OSError as error:
            reason = error.strerror or str(error)
            if isinstance(error, socket.gaierror):
                reason = f"no host of that name is known ({reason})"
        if time.monotonic() + AGAIN_S >= deadline:
            time.sleep(max(deadline - time.monotonic(), 0))
            raise Late(reason)
        time.sleep(AGAIN_S)


def _knock(place: tuple[str, int], wait_s: float) -> None:
    socket.create_connection(place, wait_s).close()


def _check_run(store: Any, launch: Launch, deadline: float) -> None:
    """Says whose the store is, or looks."""
    mine = RunIdentity.here(launch.rank, launch.size)
    if launch.rank == 0:
        text = in_time(deadline, lambda: store.compare_set(_run_key(), "", mine.as_text()), SILENT)
        theirs = RunIdentity.from_text(text)
        if theirs.who == mine.who:
            return
    else:
        theirs = run_of(store, deadline)
    if mine.differs(theirs) or theirs.size != mine.size:
        what = "the run" if mine.differs(theirs) else f"a run of {theirs.size} ranks, with"
        given = theirs.run if mine.differs(theirs) else theirs.who
        raise InvalidArgument(
            f"[group] {launch.address}:{launch.port} (MASTER_ADDR, MASTER_PORT) belongs to {what} "
            f"{given}, rank 0 is {theirs.who}; this is {mine.who} of {mine.size} of "
            f"{mine.run or 'another run'}: give each run a port of its own"
        )


def _run_key() -> str:
    return f"gear/{attempt()}/run"


def run_of(store: Any, deadline: float) -> RunIdentity:
    """The run that a launch's store is of; Late where nobody says it until `deadline`."""
    while not in_time(deadline, lambda: store.check([_run_key()]), SILENT):
        if time.monotonic() >= deadline:
            raise Late("it serves ranks, and not those of a GEAR that this one can join")
        time.sleep(POLL_S)
    return RunIdentity.from_text(in_time(deadline, lambda: store.get(_run_key()), SILENT))


def _refuse_where_another_serves(launch: Launch) -> None:
    """Where this rank 0 cannot serve since that of another run does: names it, and ends that run's
    group if it has taken in a rank of this run."""
    deadline = time.monotonic() + STORE_WAIT_S
    try:
        store = in_time(deadline, partial(_store_at, launch, False, STORE_WAIT_S), SILENT)
        server = run_of(store, deadline)
        part = _part(store, range(launch.size), 1)
        mine = RunIdentity.here(launch.rank, launch.size)
        other = in_time(deadline, lambda: _taken_in(mine, server, part, launch.size), SILENT)
        if other is not None:
            _end_mixed(part, mine, server, other)
    except (Late, RuntimeError, ValueError, OSError):
        return
    raise InvalidArgument(_taken(mine, server, f"{launch.address}:{launch.port}"))


def _unreachable(launch: Launch, serves: bool, timeout_s: float, reason: str) -> TransportError:
    failed = "could not serve the ranks' meeting point" if serves else "found no rank 0"
    return TransportError(
        f"[transport] rank {launch.rank} of {launch.size} {failed} at {launch.address}:"
        f"{launch.port} (MASTER_ADDR, MASTER_PORT) within {timeout_s:g} s: {reason}"
    )


# ---- places ----


def take_place(
    store: Any,
    rank: int,
    size: int,
    deadline: float,
    address: str,
    server: RunIdentity | None,
    given: dict[str, Any],
) -> None:
    """Takes this rank's place in a group whose part of a store this is.

    A place that is taken belongs to another run, or the rank was started twice. Whose run it is
    cannot be told for certain where no launcher names it: where this process is more like the
    store's rank 0 than the holder is, the group is told to end.

    server: the rank 0 of a launch's store; None: the ranks are torch.distributed's.
    given: by the user, for the other ranks to compare.

    Raises:
        InvalidArgument: the place is taken; names who has it.
    """
    mine = replace(RunIdentity.here(rank, size), given=given)
    text = in_time(deadline, lambda: store.compare_set(f"rank {rank}", "", mine.as_text()), SILENT)
    holder = RunIdentity.from_text(text)
    if holder == mine:
        return
    if server and mine.likeness(server) > holder.likeness(server):
        _end_mixed(store, mine, server, holder)
    raise InvalidArgument(_taken(mine, holder, address))


def _taken(mine: RunIdentity, holder: RunIdentity, address: str) -> str:
    return (
        f"[group] {mine.who} came to {address} (MASTER_ADDR, MASTER_PORT), where {holder.who} has "
        "that place: the address belongs to another run, or this rank was started twice; give each "
        "run a MASTER_PORT of its own"
    )


def _end_mixed(store: Any, mine: RunIdentity, server: RunIdentity, other: RunIdentity) -> None:
    tell_failed(
        store,
        f"[group] two runs meet at one address: {server.who} has taken in {other.who} of another "
        f"run, and {mine.who} finds its place taken: give each run a MASTER_PORT of its own",
    )


def _taken_in(mine: RunIdentity, server: RunIdentity, store: Any, size: int) -> RunIdentity | None:
    """The first rank of the server's group that is more like this process than like the server."""
    for rank in range(1, size):
        key = f"rank {rank}"
        if store.check([key]):
            one = RunIdentity.from_text(store.get(key))
            if one.likeness(mine) > one.likeness(server):
                return one
    return None


def has_come(launch: Launch) -> bool:
    """Whether this process has met the ranks of the launch, or tried to: a group tells them then
    what becomes of it."""
    return bool(_made[tuple(range(launch.size))])


def decline(launch: Launch, reason: str, wait_s: float = DECLINE_S) -> None:
    """Tells the ranks of a launch that this process does not come, and why; they end at once.

    Does nothing where no store of torch.distributed joins them: MPI's launcher ends the others.
    Takes `wait_s` at most, for the others to come; a rank 0 that serves the store stays until they
    have read it.
    """
    if launch.via != "store" or launch.size < 2:
        return
    limit = time_to_meet(wait_s)
    who = RunIdentity.here(launch.rank, launch.size).who
    try:
        store = own_store(launch_store(launch, limit), range(launch.size))
        tell_failed(store, f"{reason} (on {who}, which did not start)")
        if launch.rank > 0 or served_by_agent():
            return
        others = [f"rank {rank}" for rank in range(1, launch.size)]
        while not store.check(others) and limit.left():
            time.sleep(POLL_S)
        time.sleep(SLICE_S * 5 + pause_of(launch.size))  # the last of them may just have looked
    except (TransportError, InvalidArgument, RuntimeError):
        return


def forget_stores() -> None:
    """In a forked child: the stores' connections are the parent's."""
    for store in _stores.values():
        keep_for_ever(store)
    _stores.clear()
    _made.clear()


os.register_at_fork(after_in_child=forget_stores)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")
