"""Where the ranks of a group run, seen from one of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gear.distributed.member import Member


@dataclass(frozen=True)
class Places:
    """The members by rank, and which of them this process is."""

    rank: int
    members: tuple[Member, ...]

    @property
    def size(self) -> int:
        return len(self.members)

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """The node of every rank, numbered 0, 1, ... by first rank."""
        numbers: dict[str, int] = {}
        return tuple(numbers.setdefault(m.node, len(numbers)) for m in self.members)

    @property
    def node(self) -> int:
        return self.nodes[self.rank]

    @property
    def num_nodes(self) -> int:
        return max(self.nodes) + 1

    @property
    def local_rank(self) -> int:
        return self.nodes[: self.rank].count(self.node)

    @property
    def local_size(self) -> int:
        return self.nodes.count(self.node)
