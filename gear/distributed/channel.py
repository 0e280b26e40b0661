"""Bytes between the ranks of a group: the one thing that an adapter of a framework provides."""

from __future__ import annotations

import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gear.distributed.member import Member
from gear.errors import InvalidArgument, TransportError

TIMEOUT_S = 300.0
FIRST_BYTES = 512  # of an exchanged value that travel with its length

Views = Sequence[memoryview]


def resolve_timeout(timeout_s: float | None) -> float:
    """The seconds that a wait may take: as given, else GEAR_TIMEOUT_S, else 300."""
    name, given = "timeout_s", str(timeout_s)
    if timeout_s is None:
        name, given = "GEAR_TIMEOUT_S", os.environ.get("GEAR_TIMEOUT_S") or str(TIMEOUT_S)
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InvalidArgument(
            f"[group] {name}={given}: seconds, a number above 0, are allowed; correct or unset it"
        )
    return value


@dataclass(frozen=True)
class Absence:
    """Ranks that a collective call ended without.

    Attributes:
        ended: exited, or whose connection was closed.
        late: did not take part within `timeout_s`.
        some: at least one of these, and nothing tells which.
    """

    ended: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    timeout_s: float = 0.0
    some: bool = False

    def __bool__(self) -> bool:
        return bool(self.ended or self.late)


class Channel(ABC):
    """Collective calls between the ranks of a group, one thread at a time on each.

    Every rank makes the same calls in the same order; the calls of two channels have no order
    among each other, so that a background thread takes a `duplicate`. A call ends after `timeout_s`
    at the latest, with a TransportError that names the ranks that are missing; the group is of no
    use after that.

    `members` are there once the group is made: they tell in messages who a rank is, and whether a
    rank on this node has ended.
    """

    kind = ""  # "gloo", "mpi4py", "horovod", "threads"

    def __init__(self, rank: int, size: int, timeout_s: float) -> None:
        self.rank = rank
        self.size = size
        self.timeout_s = timeout_s
        self.members: tuple[Member, ...] = ()
        self.failed = ""  # what the first failed call said

    def allgather(self, mine: memoryview, all: memoryview, timeout_s: float | None = None) -> None:
        """Fills `all` with the bytes of rank 0, rank 1, ...: as many of each as `mine` has."""
        count = mine.nbytes
        parts = [all[rank * count : (rank + 1) * count] for rank in range(self.size)]
        self.alltoallv([mine] * self.size, parts, timeout_s)

    def alltoallv(self, to: Views, from_: Views, timeout_s: float | None = None) -> None:
        """Sends ``to[r]`` to rank r and fills ``from_[r]`` with what r sends here; both know how
        many bytes that is, maybe none. The own entry is copied."""
        if self.failed:  # what the others sent since is for another call
            raise TransportError(self.failed)
        from_[self.rank][:] = to[self.rank]
        if self.size > 1:
            wait_s = self.timeout_s if timeout_s is None else timeout_s
            absence = self._move(to, from_, time.monotonic() + wait_s)
            if absence:
                error = self.failure(absence, wait_s)
                self.failed = str(error)
                raise error

    def exchange(self, value: Any) -> list[Any]:
        """What every rank gave, by rank: small values that JSON can carry.

        Raises:
            InvalidArgument: on all ranks, where one gave something else; names it.
        """
        failed = ""
        try:
            text = json.dumps({"value": value}).encode()
        except (TypeError, ValueError) as error:
            failed = (
                f"[group] exchange of {type(value).__name__}: {error}; numbers, strings, None, and "
                "lists and dicts of them are allowed"
            )
            text = json.dumps({"failed": failed}).encode()
        room = FIRST_BYTES - 8
        first = bytearray(len(text).to_bytes(8, "little") + text[:room].ljust(room))
        firsts = memoryview(bytearray(FIRST_BYTES * self.size))
        self.allgather(memoryview(first), firsts)
        heads = [firsts[rank * FIRST_BYTES : (rank + 1) * FIRST_BYTES] for rank in range(self.size)]
        lengths = [int.from_bytes(head[:8], "little") for head in heads]
        rests = [memoryview(bytearray(max(0, length - room))) for length in lengths]
        if any(rest.nbytes for rest in rests):
            self.alltoallv([memoryview(bytearray(text[room:]))] * self.size, rests)
        told = [
            json.loads(bytes(head[8 : 8 + length]) + bytes(rest))
            for head, length, rest in zip(heads, lengths, rests, strict=True)
        ]
        if failed:
            raise InvalidArgument(failed)
        for rank, one in enumerate(told):
            if "failed" in one:
                raise InvalidArgument(f"on rank {rank}: {one['failed']}")
        return [one["value"] for one in told]

    @abstractmethod
    def _move(self, to: Views, from_: Views, deadline: float) -> Absence:
        """`alltoallv` with the other ranks. Returns who did not take part until `deadline`
        (time.monotonic); once it returns, no byte of `to` and `from_` is touched any more."""

    @abstractmethod
    def duplicate(self) -> Channel:
        """Another channel between the same ranks. Collective."""

    def answered(self, wait_s: float) -> set[int]:
        """The ranks that make this call too, within `wait_s`; all where nothing can tell."""
        return set(range(self.size))

    def close(self) -> None:
        """Gives back what the channel holds."""
        return

    # ---- who is missing ----

    def ended(self, ranks: Iterable[int]) -> set[int]:
        """Those of `ranks` on this process's node that have ended; asks nobody."""
        if not self.members:
            return set()
        node = self.members[self.rank].node
        return {
            rank
            for rank in ranks
            if self.members[rank].node == node and self.members[rank].has_ended()
        }

    def failure(self, absence: Absence, wait_s: float) -> TransportError:
        """The error that names the absent ranks."""
        if self.rank in absence.late:
            return TransportError(
                f"[transport] {self._who(self.rank)} came later than {absence.timeout_s:g} s and "
                "the others went on without it: raise timeout_s (GEAR_TIMEOUT_S) if its work may "
                "take that long"
            )
        ended = set(absence.ended)
        if not absence.some:  # else it may have ended because it gave up like this rank
            ended |= self.ended(absence.late)
        late = set(absence.late) - ended
        parts = []
        if ended:
            has = "has" if len(ended) == 1 or absence.some else "have"
            parts.append(f"{self._names(ended, absence.some)} {has} ended")
        if late:
            limit = absence.timeout_s or wait_s
            names = self._names(late, absence.some)
            parts.append(f"{names} did not take part within {limit:g} s")
        remedy = (
            "start the run again from its last checkpoint"
            if ended
            else "look for the cause there, or raise timeout_s (GEAR_TIMEOUT_S)"
        )
        return TransportError(f"[transport] {', and '.join(parts)}: {remedy}")

    def _names(self, ranks: set[int], some: bool) -> str:
        names = ", ".join(self._who(rank) for rank in sorted(ranks))
        return f"one or more of {names}" if some and len(ranks) > 1 else names

    def _who(self, rank: int) -> str:
        return str(self.members[rank]) if self.members else f"rank {rank}"


class Alone(Channel):
    """The channel of a group of one rank."""

    kind = "single"

    def __init__(self, timeout_s: float) -> None:
        super().__init__(0, 1, timeout_s)

    def _move(self, to: Views, from_: Views, deadline: float) -> Absence:
        return Absence()

    def duplicate(self) -> Channel:
        return Alone(self.timeout_s)
