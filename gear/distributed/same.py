"""What ranks must give alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gear.errors import InvalidArgument


def check_same(what: str, given: Sequence[Mapping[str, Any]]) -> None:
    """Compares what every rank gave, by rank; `what` begins the message: "[buffer] ReplayBuffer".

    Raises:
        InvalidArgument: on all ranks alike: the keys that differ, with the values and their ranks.
    """
    differing = []
    keys = list(dict.fromkeys(key for one in given for key in one))
    for key in keys:
        ranks: dict[str, list[int]] = {}
        for rank, one in enumerate(given):
            ranks.setdefault(repr(one[key]) if key in one else "not given", []).append(rank)
        if len(ranks) > 1:
            values = ", ".join(f"{value} on {named(some)}" for value, some in ranks.items())
            differing.append(f"{key} is {values}")
    if differing:
        raise InvalidArgument(f"{what}: {'; '.join(differing)}: give the same on all ranks")


def named(ranks: Sequence[int]) -> str:
    """ "rank 2", "ranks 0, 2 and 3", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    some = 8 if len(ranks) > 9 else len(ranks) - 1
    rest = str(ranks[-1]) if some == len(ranks) - 1 else f"{len(ranks) - some} more"
    return f"ranks {', '.join(map(str, ranks[:some]))} and {rest}"
