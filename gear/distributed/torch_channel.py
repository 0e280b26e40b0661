"""Bytes over gloo, between processes that meet at a store of torch.distributed.

The connections are GEAR's own: a process group that a program uses for training, nccl or gloo, is
asked who its ranks are and no more, and none is made that torch.distributed would know of.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import hashlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np

from gear.distributed.channel import Absence, Channel, Views
from gear.errors import TransportError

T = TypeVar("T")

STORE_WAIT_S = 2.0  # for a store whose host may be gone
LOOK_S = 0.5  # between two looks at who has come
MOMENT = timedelta(milliseconds=1)


class TorchChannel(Channel):
    """Bytes over a gloo process group, as one message from each rank to each.

    Args:
        store: a torch.distributed store for these ranks alone.
        server: the rank whose process serves the store; None: none of them.

    Raises:
        TransportError: a rank did not come to the store within `timeout_s`, or its gloo cannot be
            reached.
    """

    kind = "gloo"

    def __init__(
        self, store: Any, rank: int, size: int, timeout_s: float, server: int | None
    ) -> None:
        super().__init__(rank, size, timeout_s)
        self._store = store
        self._server = server
        self._tag = 0
        self._tags = [0]  # shared by all duplicates: the tags given out
        self._calls = 0
        self._pg = _connect(store, rank, size, timeout_s)

    def _move(self, to: Views, from_: Views, deadline: float) -> Absence:
        late: set[int] = set()
        closed: set[int] = set()
        verdict: Absence | None = None

        def broken(peer: int, error: RuntimeError) -> None:
            nonlocal verdict
            if "Timed out" in str(error) or "timeout" in str(error):
                late.add(peer)
                return
            closed.add(peer)
            if len(closed) == 1:
                # Said to all before waits that are cut short below close more connections.
                verdict = self._agree(Absence(ended=(peer,)))

        def start(call: Callable[..., Any], views: Views) -> list[tuple[int, Any]]:
            works = []
            for step in range(1, self.size):
                peer = (self.rank + step) % self.size
                if views[peer].nbytes > 0:
                    try:
                        works.append((peer, call([_tensor(views[peer])], peer, self._tag)))
                    except RuntimeError as error:
                        broken(peer, error)
            return works

        timeout_s = round(deadline - time.monotonic(), 3)
        # A wait that times out closes its connection, so each is made once; with the others it is
        # made too, since only then gloo is done with their memory.
        for peer, work in start(self._pg.recv, from_) + start(self._pg.send, to):
            left = timedelta(seconds=max(deadline - time.monotonic(), 0))
            try:
                work.wait(MOMENT if closed else max(left, MOMENT))
            except RuntimeError as error:
                broken(peer, error)
        if closed:
            return verdict or Absence(ended=tuple(sorted(self._causes(closed))))
        if not late:
            return Absence()
        mine = Absence(late=tuple(sorted(late)), timeout_s=timeout_s)
        return self._agree(mine) or mine

    def _causes(self, closed: set[int]) -> set[int]:
        """Those of the ranks that closed their connections which did not just give up as well."""
        node = self.members[self.rank].node if self.members else None
        here = {peer for peer in closed if self.members and self.members[peer].node == node}
        ended = self.ended(closed)
        return closed - (here - ended) if ended else closed

    def _agree(self, absence: Absence) -> Absence | None:
        """What the first rank to fail found, so that a rank which only sees others go does not
        take them for the cause; None where the store is gone."""
        if self._server is not None and (
            self._server in absence.ended or self.ended([self._server])
        ):
            return None
        mine = json.dumps([absence.ended, absence.late, absence.timeout_s])
        found = _soon(lambda: self._store.compare_set("absence", "", mine))
        if not found:
            return None
        ended, late, timeout_s = json.loads(found)
        return Absence(tuple(ended), tuple(late), timeout_s)

    def duplicate(self) -> Channel:
        # Messages of another tag: the connections are the same.
        channel = copy.copy(self)
        self._tags[0] += 1
        channel._tag = self._tags[0]
        return channel

    def answered(self, wait_s: float) -> set[int]:
        self._calls += 1
        keys = {rank: f"call {self._calls} {rank}" for rank in range(self.size)}
        if _soon(lambda: self._store.set(keys[self.rank], "here") or True) is None:
            return {self.rank}
        there = {self.rank}
        deadline = time.monotonic() + wait_s
        while len(there) < self.size:
            for rank in set(keys) - there:
                if _holds(self._store, keys[rank]):
                    there.add(rank)
            if time.monotonic() >= deadline:
                break
            time.sleep(0.02)
        return there

    def close(self) -> None:
        self._pg = None
        self._store = None


def _connect(store: Any, rank: int, size: int, timeout_s: float) -> Any:
    from torch.distributed import ProcessGroupGloo

    try:
        absent = _wait_for_all(store, rank, size, time.monotonic() + timeout_s)
        if not absent:
            return ProcessGroupGloo(store, rank, size, timedelta(seconds=timeout_s))
    except (RuntimeError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise TransportError(
            f"[transport] rank {rank} could not connect to the other {size - 1} ranks: {reason}; "
            "look at their output, or name the network interface in GLOO_SOCKET_IFNAME"
        ) from error
    raise TransportError(
        f"[transport] {_ranks(absent)} did not start within {timeout_s:g} s: look at the "
        "launcher's output, or raise timeout_s (GEAR_TIMEOUT_S)"
    )


def _wait_for_all(store: Any, rank: int, size: int, deadline: float) -> list[int]:
    """The ranks that have not come to the store until `deadline`."""
    keys = [f"rank {peer}" for peer in range(size)]
    store.set(keys[rank], "here")
    absent = list(range(size))
    while absent:
        slice_s = min(LOOK_S, deadline - time.monotonic())
        if slice_s <= 0:
            break
        try:
            store.wait([keys[peer] for peer in absent], timedelta(seconds=slice_s))
            absent = []
        except RuntimeError:
            try:
                absent = [peer for peer in absent if not store.check([keys[peer]])]
            except RuntimeError:
                if len(absent) == size:
                    raise
                break  # whoever served the store gave up just before: go by the last look
    return absent


def _ranks(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _soon(call: Callable[[], T]) -> T | None:
    """What `call` to a store returns; None where the store fails or does not answer."""
    results: list[T] = []

    def make() -> None:
        try:
            results.append(call())
        except RuntimeError:  # the store is gone
            return

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    thread.join(STORE_WAIT_S)
    return results[0] if results else None


def _holds(store: Any, key: str) -> bool | None:
    return _soon(lambda: bool(store.check([key])))


def _tensor(view: memoryview) -> Any:
    """The view's bytes as a tensor, without a copy. It keeps no reference to the view."""
    import torch

    if view.readonly:  # torch warns of such memory; what is sent is only read
        address = np.frombuffer(view, np.uint8).ctypes.data
        memory = (ctypes.c_char * view.nbytes).from_address(address)
        return torch.frombuffer(memory, dtype=torch.uint8)
    return torch.frombuffer(view, dtype=torch.uint8)


# ---- where the ranks meet ----

_made: Counter[tuple[int, ...]] = Counter()


def own_store(store: Any, ranks: Sequence[int]) -> Any:
    """A part of `store` for one group of these ranks, which all of them make in the same order."""
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    key = tuple(ranks)
    _made[key] += 1
    names = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
    return PrefixStore(f"gear/{names}/{_made[key]}", store)


@functools.cache  # the address can be served once, and a process may make several groups
def rendezvous_store(address: str, port: int, rank: int, size: int, timeout_s: float) -> Any:
    """The store at `address`: torchrun's, else rank 0 serves it.

    A later init_process_group at the same address shares it.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    try:
        return TCPStore(
            address,
            port,
            size,
            is_master=rank == 0 and not served_by_agent(),
            timeout=timedelta(seconds=timeout_s),
            wait_for_workers=False,
            multi_tenant=True,
        )
    except (RuntimeError, ValueError, OSError) as error:
        reason = next(iter(str(error).splitlines()), "")
        failed = "could not serve the ranks' meeting point" if rank == 0 else "found no rank 0"
        raise TransportError(
            f"[transport] rank {rank} of {size} {failed} at {address}:{port} (MASTER_ADDR, "
            f"MASTER_PORT) within {timeout_s:g} s: {reason}"
        ) from error


def served_by_agent() -> bool:
    """Whether torchrun's own process serves the store at MASTER_ADDR."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def default_store() -> Any:
    """The store of torch.distributed's own groups."""
    from torch.distributed import distributed_c10d

    return distributed_c10d._get_default_store()
