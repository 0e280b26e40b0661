"""Who of a group has come to its store, and why the group has ended: what gloo does not tell."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from gear.distributed.calls import STORE_WAIT_S, Late, in_time, soon
from gear.distributed.member import Member
from gear.distributed.timeout import SLICE_S
from gear.errors import TransportError

POLL_S = 0.05  # between two looks whether all have come
AGREE_S = 10.0  # for what a group has failed of to be told and heard, on a busy machine
WHO_S = 1.0  # between two looks at who has, rank by rank
SILENT = (
    "something listens there and does not answer as a rank 0 does: another program has that port, "
    "or rank 0 is stopped"
)


def wait_for_places(
    store: Any, size: int, deadline: float, tell: Callable[[list[int]], None] = lambda _: None
) -> list[int]:
    """The ranks that have not come until `deadline`.

    tell: is given them whenever this has looked rank by rank, and where all have come.

    Raises:
        TransportError: one of them has said that it does not come.
        RuntimeError, Late: the store is gone, or silent.
    """
    absent = list(range(size))
    ask_who = time.monotonic() + WHO_S
    while absent:
        now = time.monotonic()
        each = now >= min(ask_who, deadline - POLL_S)
        try:
            absent, told = in_time(
                deadline, partial(still_absent, store, absent, each=each), SILENT
            )
        except (RuntimeError, Late):
            if len(absent) == size or time.monotonic() < deadline - WHO_S:
                raise
            break  # whoever served the store gave up just before: go by the last look
        if told:
            raise TransportError(told)
        if each:
            ask_who = now + WHO_S
        if each or not absent:
            tell(absent)
        if now >= deadline:
            break
        time.sleep(min(POLL_S, max(deadline - time.monotonic(), 0)))
    return absent


def still_absent(store: Any, missing: list[int], *, each: bool) -> tuple[list[int], str]:
    """(those of `missing` that are not there yet, what one of the ranks told of its end); without
    `each`, one question for all of them: that many ranks ask at once."""
    keys = {rank: f"rank {rank}" for rank in missing}
    if store.check(list(keys.values())):
        return [], told_failed(store)
    absent = [rank for rank in missing if not store.check([keys[rank]])] if each else missing
    return absent, told_failed(store)


def who_came(store: Any, size: int) -> tuple[Member, ...]:
    """The ranks, as those that took the places told of themselves."""
    texts = store.multi_get([f"rank {rank}" for rank in range(size)])
    return tuple(Member.from_json(json.loads(text)["member"]) for text in texts)


def tell_failed(store: Any, text: str, heard_by: int | None = None) -> None:
    """Tells the ranks of a group why it has ended; the first words count.

    heard_by: the rank that tells them, which so knows itself.
    """
    said = json.dumps({"text": text})

    def tell() -> None:
        store.compare_set("failed", "", said)
        if heard_by is not None:
            store.set(f"heard {heard_by}", "here")

    soon(tell, SLICE_S * 3)


def stay_until_heard(store: Any, ranks: set[int], here: Iterable[Member], most_s: float) -> None:
    """Keeps a process from ending until those of `ranks` that have come know why the group has, and
    have said so; `most_s` at most, and no longer than there is a store.

    here: those whose processes can be looked at; that of one that has ended is not waited for.
    """

    def all_know() -> bool:
        left = ranks - {member.rank for member in here if member.has_ended()}
        came = [rank for rank in left if store.check([f"rank {rank}"])]
        return all(store.check([f"heard {rank}"]) for rank in came)

    until = time.monotonic() + most_s
    with contextlib.suppress(KeyboardInterrupt, RuntimeError, Late):
        # Not cut short: a thread that comes back from the store while Python ends would abort it.
        while time.monotonic() < until and not in_time(
            time.monotonic() + STORE_WAIT_S, all_know, ""
        ):
            time.sleep(POLL_S)


def told_failed(store: Any) -> str:
    """What was told so; may raise RuntimeError or block where the store is gone."""
    if not store.check(["failed"]):
        return ""
    return str(json.loads(store.get("failed")).get("text", ""))
