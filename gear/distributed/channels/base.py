"""Bytes between the ranks of a group: the one thing that an adapter of a framework provides."""

from __future__ import annotations

import contextlib
import copy
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from gear import _core
from gear.distributed import process_life
from gear.distributed.channels.frame import NUMBERS, Frame
from gear.distributed.member import Member
from gear.distributed.timeout import Limit
from gear.errors import InvalidArgument, TransportError

Views = Sequence[memoryview]
C = TypeVar("C", bound="Channel")


@dataclass(frozen=True)
class Absence:
    """Ranks that a collective call ended without.

    Attributes:
        ended: exited, or whose connection was closed.
        late: did not take part within `timeout_s`.
    """

    ended: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    timeout_s: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.ended or self.late)


@dataclass
class _Family:
    """What a channel and its duplicates have in common.

    Attributes:
        forked: this process is a fork of the one that made them.
        told_others: the other ranks have been told that the group has failed.
        by_itself: this rank ended it, by Ctrl-C or an exception.
    """

    forked: bool = False
    told_others: bool = False
    by_itself: bool = False


class Channel(ABC):
    """Collective calls between the ranks of a group, one thread at a time on each.

    Every rank makes the same calls in the same order; the calls of two channels have no order
    among each other, so that a background thread takes a `duplicate`. A call ends after `timeout_s`
    at the latest, with a TransportError that names the ranks that are missing, and at once when the
    group has failed on any rank or Python raises in the middle of it (Ctrl-C); the group is of no
    use after that.

    Every message begins with its `Frame`: what call it is of, the how manyth, and how long. It is
    looked at before anything else of the call is taken, so that ranks in different calls learn
    which.

    `members` are there once the group is made: they tell in messages who a rank is, and whether a
    rank on this host has ended.
    """

    kind = ""  # "gloo", "single", or the transport's name: "shared_memory", "libfabric", "mpi", ...

    def __init__(self, rank: int, size: int, timeout_s: float) -> None:
        self.rank = rank
        self.size = size
        self.timeout_s = timeout_s
        self.members: tuple[Member, ...] = ()
        self.failure = _core.Failure()  # of the group: shared with duplicates and transports
        self._family = _Family()
        self._start()
        process_life.speakers.add(self)

    def _start(self) -> None:
        """What a duplicate has for itself."""
        self._number = 0  # of calls made
        self._turn = threading.RLock()
        self._doing = ""

    def _twin(self: C) -> C:
        """Another channel over the same connections."""
        twin = copy.copy(self)
        twin._start()
        process_life.speakers.add(twin)
        return twin

    @property
    def failed(self) -> str:
        """What ended the group; empty: nothing."""
        return self.failure.text

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Around what one call of the user does with other ranks: `what` says it in messages.

        Raises:
            InvalidArgument: another thread is in a call of this channel; or this process is a fork
                of the one that made it.
        """
        if self._family.forked:
            raise InvalidArgument(
                "[group] this group was made before this process was forked, and its connections "
                "belong to the parent: make a group in the process that uses it"
            )
        if not self._turn.acquire(blocking=False):
            raise InvalidArgument(
                f"[group] {what} while another thread's {self._doing or 'call'} of this group has "
                "not returned: one thread at a time may use a group; make a group for each, in "
                "the same order on all ranks, or put a lock around it"
            )
        before = self._doing
        self._doing = before or what
        try:
            yield
        except Exception:
            raise
        except BaseException:  # Ctrl-C: the others are in the middle of the same
            self._say_interrupted(self._doing)
            raise
        finally:
            self._doing = before
            self._turn.release()

    def allgather(self, mine: memoryview, all: memoryview, timeout_s: float | None = None) -> None:
        """Fills `all` with the bytes of rank 0, rank 1, ...: as many of each as `mine` has."""
        count = mine.nbytes
        parts = [all[rank * count : (rank + 1) * count] for rank in range(self.size)]
        self._gather("allgather", mine, parts, timeout_s)

    @abstractmethod
    def exchange_bytes(
        self, to: Views, sizes: Sequence[int] | None = None, timeout_s: float | None = None
    ) -> Views:
        """Sends ``to[r]`` to rank r; returns what every rank sent here, by rank.

        sizes: how many bytes come, by rank: other ones end the group, and where none come no
            message is sent. All ranks know them, or none does.
        """

    @abstractmethod
    def _gather(
        self,
        kind: str,
        mine: memoryview,
        into: Views | None,
        timeout_s: float | None = None,
        *,
        waited_s: float = 0.0,
    ) -> Views:
        """What every rank gives in a call of `kind`, by rank: as many bytes as `into` has for it,
        which it fills; None: as many as it says.

        waited_s: for the same ranks, before this call; its error says how long it was in all.
        """

    def barrier(self, timeout_s: float | None = None, waited_s: float = 0.0) -> None:
        """Returns when all ranks are here; waited_s: for them, before this call."""
        nothing = memoryview(bytearray())
        with self.doing("Group.barrier"):
            self.look()
            self._gather("barrier", nothing, [nothing] * self.size, timeout_s, waited_s=waited_s)

    def exchange(self, value: Any) -> list[Any]:
        """What every rank gave, by rank: small values that JSON can carry.

        Raises:
            InvalidArgument: on all ranks, where one gave something else; names it.
        """
        with self.doing("Group.exchange"):
            self.look()
            return self._exchange(value)

    def _exchange(self, value: Any) -> list[Any]:
        failed = ""
        try:
            text = json.dumps({"value": value}).encode()
            _refuse_keys(value)
        except (TypeError, ValueError, RecursionError) as error:
            failed = (
                f"[group] exchange of {type(value).__name__}: {error}; numbers, strings, None, and "
                "lists and dicts of them, with strings as keys, are allowed"
            )
            text = json.dumps({"failed": failed}).encode()
        texts = self._gather("exchange", memoryview(text), None)
        told = [json.loads(bytes(text)) for text in texts]
        if failed:
            raise InvalidArgument(failed)
        for rank, one in enumerate(told):
            if "failed" in one:
                raise InvalidArgument(f"on rank {rank}: {one['failed']}")
        return [one["value"] for one in told]

    def _next(self, kind: str, *, longer: bool = False) -> Frame:
        """Of the call that begins."""
        self._number = (self._number + 1) % NUMBERS
        return Frame(kind, self._number, self._doing, longer)

    def _check(
        self, peer: int, own: Frame, first: memoryview, expected: int | None
    ) -> tuple[Frame, int]:
        """(frame, length) of the message of `first`; TransportError where it is of another call, or
        not of the `expected` bytes (None: as many as it says)."""
        frame, length = Frame.of_first_part(first)
        if (frame.kind, frame.number) != (own.kind, own.number):
            both = sorted([(self.rank, own), (peer, frame)], key=lambda pair: pair[0])
            texts = [f"{self._who(rank)} is in {one}" for rank, one in both]
            self._give_up(
                f"[transport] {' and '.join(texts)}: all ranks must make the same calls in the "
                "same order"
            )
        if expected is not None and length != expected:
            self._give_up(
                f"[transport] {own}: {self._who(peer)} gives {length} bytes and "
                f"{self._who(self.rank)} expects {expected} of it: give the same on all "
                "ranks"
            )
        return frame, length

    def _finish(self, absence: Absence, limit: Limit) -> None:
        if absence:
            self._give_up(str(self.failure_of(absence, limit.seconds)))

    def _give_up(self, text: str) -> NoReturn:
        self.fail(text)
        raise TransportError(self.failed)

    def fail(self, text: str) -> None:
        """Ends the group on all ranks that can be told, with these words; the first ones count."""
        if not text.startswith("["):
            text = f"[transport] {text}: start the run again from its last checkpoint"
        self.failure.tell(text)
        self._tell_others()

    def look(self) -> None:
        """Raises TransportError where the group has failed, as far as can be told at once."""
        self._raise_if_failed()
        self._look()

    def pass_on(self, error: BaseException, what: str, *, alone: bool = False) -> None:
        """Tells the other ranks what ended a wait of this one elsewhere: in the core, in `what`.

        alone: they wait for this rank, which cannot go on, whatever `error` is.

        Raises:
            TransportError: `error` is one: with the words that ended the group, and the ranks as it
                knows them.
        """
        if not isinstance(error, Exception):
            self._say_interrupted(what)
        elif self.failed:
            self._tell_others()
            if isinstance(error, TransportError):
                raise TransportError(self.failed) from None
        elif alone and self.size > 1:
            self._family.by_itself = True
            kind = type(error).__name__
            self.fail(f"{self._who(self.rank)} failed in {what} with {kind}: {error}")

    def say_ended(self, error: BaseException) -> None:
        """Tells the other ranks that `error` ends this process."""
        if self.size > 1 and not self._family.forked:
            self._family.by_itself = True
            self.fail(f"{self._who(self.rank)} ended with {process_life.described(error)}")

    def finish_telling(self) -> None:
        """Waits until what ended the group has left for the other ranks, some seconds at most."""
        if not self._family.forked:
            self.failure.finish_telling()

    def _say_interrupted(self, what: str) -> None:
        if self.size > 1:
            self._family.by_itself = True
            self.fail(f"{self._who(self.rank)} was interrupted in {what}")

    def _raise_if_failed(self) -> None:
        if self.failed:
            self._tell_others()
            raise TransportError(self.failed)

    def _tell_others(self) -> None:
        if not self._family.told_others:
            self._family.told_others = True
            self._pass_on(self.failed)

    @abstractmethod
    def duplicate(self) -> Channel:
        """Another channel between the same ranks. Collective."""

    def _pass_on(self, text: str) -> None:
        """Tells the other ranks that the group has failed, where there is a way; does not wait."""
        return

    def _look(self) -> None:
        """Raises TransportError where others have told that the group has failed; asks at most
        every LOOK_S."""
        return

    def agreed(self, absence: Absence) -> Absence:
        """What the first rank to fail found: who only sees others go may take those for the cause
        that gave up because of it. Raises TransportError where that rank told it in words."""
        self._look()
        return absence

    def answered(self, wait_s: float) -> set[int]:
        """The ranks that make this call too, within `wait_s`; all where nothing can tell."""
        return set(range(self.size))

    def close(self) -> None:
        """Gives back what the channel holds."""
        process_life.speakers.discard(self)

    def forget(self) -> None:
        """In a forked child: keeps what the channel holds from being destroyed, which would wait
        for threads that stayed in the parent."""
        self._family.forked = True

    # ---- who is missing ----

    def ended(self, ranks: Iterable[int]) -> set[int]:
        """Those of `ranks` on this process's host that have ended; asks nobody."""
        here = self._on_this_host()
        return {rank for rank in ranks if rank in here and self.members[rank].has_ended()}

    def _on_this_host(self) -> set[int]:
        if not self.members:
            return set()
        host = self.members[self.rank].host
        return {member.rank for member in self.members if member.host == host}

    def failure_of(self, absence: Absence, wait_s: float) -> TransportError:
        """The error that names the absent ranks."""
        if self.rank in absence.late:
            return TransportError(
                f"[transport] {self._who(self.rank)} came later than {absence.timeout_s:g} s and "
                "the others went on without it: raise timeout_s (GEAR_TIMEOUT_S) if its work may "
                "take that long"
            )
        ended = {*absence.ended, *self.ended(absence.late)}
        late = set(absence.late) - ended
        parts = []
        if ended:
            has = "has" if len(ended) == 1 else "have"
            parts.append(f"{self._names(ended)} {has} ended")
        if late:
            limit = absence.timeout_s or wait_s
            parts.append(f"{self._names(late)} did not take part within {limit:g} s")
        remedy = (
            "start the run again from its last checkpoint"
            if ended
            else "look for the cause there, or raise timeout_s (GEAR_TIMEOUT_S)"
        )
        return TransportError(f"[transport] {', and '.join(parts)}: {remedy}")

    def _names(self, ranks: set[int]) -> str:
        return ", ".join(self._who(rank) for rank in sorted(ranks))

    def _who(self, rank: int) -> str:
        return str(self.members[rank]) if self.members else f"rank {rank}"


def _refuse_keys(value: Any) -> None:
    """TypeError for a dict with keys that JSON makes strings of."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} of a dict is no string")
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return
    for one in value:
        _refuse_keys(one)


class Alone(Channel):
    """The channel of a group of one rank."""

    kind = "single"

    def __init__(self, timeout_s: float) -> None:
        super().__init__(0, 1, timeout_s)

    def exchange_bytes(
        self, to: Views, sizes: Sequence[int] | None = None, timeout_s: float | None = None
    ) -> Views:
        return to

    def _gather(
        self,
        kind: str,
        mine: memoryview,
        into: Views | None,
        timeout_s: float | None = None,
        *,
        waited_s: float = 0.0,
    ) -> Views:
        self._raise_if_failed()
        if into is None:
            return [mine]
        into[0][:] = mine
        return into

    def duplicate(self) -> Channel:
        return self._twin()
