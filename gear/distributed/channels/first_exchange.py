"""A first exchange of rows between nodes, by each kind that could carry them: which is fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gear import _core
from gear.distributed.channels.base import Channel
from gear.errors import GearError

PATIENCE_S = 20.0  # the longest wait for one that does not answer, in groups with more time
TIE = 0.9  # of the fastest: who is no slower comes by the order of preference


@dataclass(frozen=True)
class Tried:
    """One kind of transport after its first exchange, the same on all ranks.

    Attributes:
        bytes_per_s: of the slowest rank; 0: it failed.
        failed: why, naming the ranks.
    """

    kind: str
    bytes_per_s: float
    failed: str = ""


def patience_s(channel: Channel) -> float:
    """How long a kind may take to answer: well below what ranks wait for one another."""
    return min(PATIENCE_S, channel.timeout_s / 4)


def sources(nodes: Sequence[int]) -> list[int]:
    """Of which rank each rank gets rows: of one on the next node, in turns where a node has fewer.

    nodes: of every rank, numbered from 0; at least two.
    """
    ranks = [[rank for rank, node in enumerate(nodes) if node == n] for n in range(max(nodes) + 1)]
    chosen = []
    for rank, node in enumerate(nodes):
        there = ranks[(node + 1) % len(ranks)]
        chosen.append(there[ranks[node].index(rank) % len(there)])
    return chosen


def try_out(
    channel: Channel, nodes: Sequence[int], kind: str, make: Callable[[], _core.Transport]
) -> Tried:
    """Has the transport that `make` returns carry rows from node to node. Collective.

    What fails here or on another rank is told, and ends the group only where the group's own
    connections have failed, or a rank has ended.
    """
    rate, failed = 0.0, ""
    try:
        rate = _core.first_exchange(make(), sources(nodes), patience_s(channel) / 2)
    except (GearError, OSError) as error:
        channel.look()
        failed = str(error).removeprefix("[transport] ")
    told = channel.exchange([rate, failed])
    for rank, (_, why) in enumerate(told):
        if why:
            return Tried(kind, 0.0, why if "rank " in why else f"rank {rank}: {why}")
    return Tried(kind, min(rate for rate, _ in told))


def fastest(tried: Sequence[Tried]) -> Tried:
    """Of those that have answered, in the order of preference: the first that is no more than 10 %
    slower than the fastest."""
    most = max(one.bytes_per_s for one in tried)
    return next(one for one in tried if one.bytes_per_s >= TIE * most)


def told(tried: Sequence[Tried], num_nodes: int, taken: str) -> str:
    """``"verbs 11.2 GB/s, mpi 7.9, group 1.1: rows between 2 nodes, in a first exchange"``."""
    measured = sorted((one for one in tried if not one.failed), key=lambda one: -one.bytes_per_s)
    figures = [f"{one.kind} {_figure(one.bytes_per_s / 1e9)}" for one in measured]
    figures[:1] = [f"{one} GB/s" for one in figures[:1]]
    answered = ", ".join(figures) or "none answered"
    equal = [one.kind for one in measured if one.bytes_per_s >= TIE * measured[0].bytes_per_s]
    first = f"; {taken}, within 10 % of {equal[0]}, is preferred" if taken in equal[1:] else ""
    left_out = "".join(f"; {one.kind} left out: {one.failed}" for one in tried if one.failed)
    return f"{answered}: rows between {num_nodes} nodes, in a first exchange{first}{left_out}"


def _figure(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"
