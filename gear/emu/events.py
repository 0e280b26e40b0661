"""What happens to emulated ranks in the course of a job."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gear.arguments import check_count, check_number
from gear.emu.models.links import LINKS
from gear.errors import InvalidArgument


@dataclass(frozen=True)
class Slow:
    """A rank computes `by` times as long as its mirror: its calls arrive later by that.

    Args:
        rank: of the world, emulated.
        by: 1 or more.
        from_s: seconds of the job's age, by its first call of a group; from then on.
        to_s: until then.
    """

    rank: int
    by: float
    from_s: float = 0.0
    to_s: float = math.inf

    def __post_init__(self) -> None:
        check_count("[emu] rank of a slow event", self.rank, least=0)
        by = check_number("[emu] by of a slow event", self.by)
        if not 1 <= by < math.inf:
            raise InvalidArgument(f"[emu] by {by} of a slow event: 1 or more is allowed")
        from_s = check_number("[emu] from_s of a slow event", self.from_s)
        to_s = check_number("[emu] to_s of a slow event", self.to_s)
        if not 0 <= from_s < to_s:
            raise InvalidArgument(
                f"[emu] a slow event from {self.from_s} to {self.to_s} s: later ends are allowed,"
                " from 0 on"
            )


@dataclass(frozen=True)
class Dead:
    """A rank takes part in no call of its groups from one on: those calls time out.

    Args:
        rank: of the world, emulated.
        call: how many calls of groups a process has made before, of all its groups.
    """

    rank: int
    call: int = 0

    def __post_init__(self) -> None:
        check_count("[emu] rank of a dead event", self.rank, least=0)
        check_count("[emu] call of a dead event", self.call, least=0)


@dataclass(frozen=True)
class Jitter:
    """Emulated ranks compute by chance longer or shorter than their mirrors, each call anew.

    By a factor whose logarithm is normal and whose mean is 1, of the job's seed, the rank and the
    call: the same job is the same again. Who comes earlier than its mirror changes nothing.

    Args:
        sigma: standard deviation of the logarithm, above 0.
        rank: of the world, emulated; None: all emulated ones, each by itself.
    """

    sigma: float
    rank: int | None = None

    def __post_init__(self) -> None:
        sigma = check_number("[emu] sigma of a jitter event", self.sigma)
        if not 0 < sigma <= 2:
            raise InvalidArgument(
                f"[emu] sigma {sigma} of a jitter event: more than 0 is allowed, 2 at most"
            )
        if self.rank is not None:
            check_count("[emu] rank of a jitter event", self.rank, least=0)


@dataclass(frozen=True)
class LinkChange:
    """A link has another part of its bandwidth from a time on, until the next change of it.

    Models are asked anew, with links whose number is multiplied; curves of a file stay as they are.

    Args:
        link: ``"nvlink"`` or ``"nic"``.
        times: of what the job's links say, 0 or more. 0: what goes over it never ends.
        from_s: seconds of the job's age, by its first call of a group.
    """

    link: str
    times: float
    from_s: float = 0.0

    def __post_init__(self) -> None:
        if self.link not in LINKS:
            raise InvalidArgument(
                f"[emu] link {self.link!r} of a link event: {', '.join(LINKS)} are allowed"
            )
        times = check_number("[emu] times of a link event", self.times)
        if not 0 <= times < math.inf:
            raise InvalidArgument(f"[emu] times {times} of a link event: 0 or more is allowed")
        if not 0 <= check_number("[emu] from_s of a link event", self.from_s) < math.inf:
            raise InvalidArgument(
                f"[emu] from_s {self.from_s} of a link event: 0 or more is allowed"
            )


Event = Slow | Dead | Jitter | LinkChange
KINDS: dict[str, type[Event]] = {"slow": Slow, "dead": Dead, "jitter": Jitter, "link": LinkChange}
