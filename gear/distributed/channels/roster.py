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
from gear.distributed.timeout import LOOK_S, SLICE_S
from gear.errors import TransportError

POLL_S = 0.05  # between two looks whether all have come, at least
QUESTIONS = 2  # of a look
MOST_QUESTIONS = 5000  # a second, of all ranks: a quarter of what a store answers
DEAF_S = 10.0  # no look at a store for so long that has not answered
AGREE_S = 10.0  # for what a group has failed of to be told and heard, on a busy machine
WHO_S = 1.0  # between two looks at who has, at least
SILENT = (
    "something listens there and does not answer as a rank 0 does: another program has that port, "
    "or rank 0 is stopped"
)


def wait_for_places(
    store: Any,
    size: int,
    deadline: float,
    tell: Callable[[list[int]], None] = lambda _: None,
    whole: Any = None,
) -> list[int]:
    """Counts this rank, which has a place, and returns the ranks that have none at `deadline`.

    The last one to come collects what all have said, for `said_by_all`: no rank asks for each.

    tell: is given them whenever this has looked who they are, and where all have come.
    whole: the group's store, of which `store` is a part; None: it is the same.

    Raises:
        TransportError: one of them has said that it does not come.
        RuntimeError, Late: the store is gone, or silent.
    """
    absent = list(range(size))
    whole = whole or store
    came = in_time(deadline, partial(_count, store, size), SILENT)
    lookers = 1 if came == 1 else size  # of those that look who is missing as often as this rank
    ask_who = time.monotonic() + max(WHO_S, _pause_of_lookers(lookers, size))
    while True:
        now = time.monotonic()
        each = now >= min(ask_who, deadline - POLL_S)
        try:
            absent, told = in_time(
                deadline, partial(_still_absent, store, size, absent, whole, each=each), SILENT
            )
        except (RuntimeError, Late):
            if len(absent) == size or time.monotonic() < deadline - WHO_S:
                raise
            return absent  # whoever served the store gave up just before: go by the last look
        if told:
            raise TransportError(told)
        if each or not absent:
            tell(absent)
        if not absent or now >= deadline:
            return absent
        if each:  # together they leave the store half of its time
            took = 2 * lookers * (time.monotonic() - now)
            ask_who = time.monotonic() + max(WHO_S, took, _pause_of_lookers(lookers, len(absent)))
        time.sleep(min(pause_of(size), max(deadline - time.monotonic(), 0)))


def pause_of(size: int) -> float:
    """Seconds between two looks of a rank: together they leave the store three quarters of its
    time."""
    return max(POLL_S, size * QUESTIONS / MOST_QUESTIONS)


def _pause_of_lookers(lookers: int, missing: int) -> float:
    """The same between two looks who is missing, which cost two questions a missing rank."""
    return 2 * missing * lookers / MOST_QUESTIONS


def _count(store: Any, size: int) -> int:
    """Returns the how manyth rank this is."""
    came = int(store.add("came", 1))
    if came == size:
        _collect(store, size)
    return came


def _collect(store: Any, size: int) -> None:
    said = store.multi_get([f"rank {rank}" for rank in range(size)])
    store.set("all", json.dumps([text.decode() for text in said]))


def _still_absent(
    store: Any, size: int, missing: list[int], whole: Any, *, each: bool
) -> tuple[list[int], str]:
    """(those of `missing` that are not there yet, what one of the ranks told of its end); without
    `each`, whether all are."""
    if store.check(["all"]):
        return [], told_failed(whole)
    if each:
        keys = [f"rank {rank}" for rank in missing]
        missing = [missing[place] for place in lacking(store, keys)]
        if not missing:  # whoever came last has ended before it said so, or is about to
            _collect(store, size)
    return missing, told_failed(whole)


def lacking(store: Any, keys: list[str]) -> list[int]:
    """Which of the keys the store does not have, by place; few questions find the few."""

    def between(begin: int, end: int) -> list[int]:
        if begin == end or store.check(keys[begin:end]):
            return []
        if end - begin == 1:
            return [begin]
        middle = (begin + end) // 2
        return between(begin, middle) + between(middle, end)

    return between(0, len(keys))


def said_by_all(store: Any) -> list[Any]:
    """What the ranks said, by rank, once wait_for_places has found them all."""
    return [json.loads(text) for text in json.loads(store.get("all"))]


class Roll:
    """Calls the roll of the ranks that have a store, after a failure.

    server: the rank whose process serves the store; None: none of them.
    """

    def __init__(self, store: Any, rank: int, size: int, server: int | None) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._server = server
        self._calls = 0

    def __call__(self, wait_s: float) -> set[int]:
        """The ranks that make this call too, within `wait_s`."""
        self._calls += 1
        store, roll = self._store, f"call {self._calls}"
        keys = [f"{roll} {rank}" for rank in range(self._size)]

        def ask(call: Callable[[], Any]) -> Any:
            """A store that all ranks ask at once is busy, and not gone, for seconds."""
            return in_time(time.monotonic() + DEAF_S, call, SILENT)

        deadline, pause = time.monotonic() + wait_s, 0.02
        try:
            ask(lambda: store.set(keys[self._rank], "here"))
            there = ask(lambda: store.add(roll, 1))
            while there < self._size and time.monotonic() < deadline:
                time.sleep(pause)
                pause = min(2 * pause, LOOK_S)
                there = ask(lambda: store.add(roll, 0))
            return set(range(self._size)) - set(ask(lambda: lacking(store, keys)))
        except (Late, RuntimeError):
            return set(range(self._size)) - {self._server}  # no more can be told


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


def stay_until_all_heard(store: Any, answers: int) -> None:
    """Keeps a process from ending until so many answers were taken; AGREE_S at most."""
    until = time.monotonic() + AGREE_S
    with contextlib.suppress(KeyboardInterrupt, RuntimeError, Late):
        while time.monotonic() < until:
            if in_time(until, lambda: store.add("heard", 0), "") >= answers:
                return
            time.sleep(POLL_S)


def told_failed(store: Any) -> str:
    """What was told so; may raise RuntimeError or block where the store is gone."""
    if not store.check(["failed"]):
        return ""
    return str(json.loads(store.get("failed")).get("text", ""))
