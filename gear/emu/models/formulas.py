"""What NCCL's algorithms take, by the links that they use: closed formulas.

p ranks, g a node on m nodes; n bytes as gear.emu.OPERATIONS counts them. Every algorithm is a line:
seconds for a call of nothing, and seconds a byte. NCCL takes the fastest, and so does `fastest`.

    ring            all_reduce 2 (p - 1) hops, 2 (p - 1) / p of the bytes; others half of both
    tree            2 log2(m) hops between nodes and 2 (g - 1) inside, twice the bytes
    two levels      reduce_scatter inside, all_reduce of a g-th between, all_gather inside
    by the switch   NVLS, where its bandwidth is known for that many GPUs; over nodes, NVLSTree

Hops and protocols: NVIDIA/nccl, src/graph/tuning.cc. Bus bandwidth: NVIDIA/nccl-tests,
doc/PERFORMANCE.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gear.emu.models.curve import check_operation
from gear.emu.models.links import Links
from gear.emu.models.shape import Shape

MOST_CHANNELS = 32  # of NCCL: so many messages of a rank are under way at once
TREE_SHARE = 0.9  # of the bandwidth, in NCCL's own model


@dataclass(frozen=True)
class Line:
    """Seconds for a call of nothing, and for each byte."""

    call_s: float
    byte_s: float
    name: str

    def seconds(self, size: int) -> float:
        """Of `size` bytes."""
        return self.call_s + size * self.byte_s

    def then(self, other: Line, name: str) -> Line:
        """One behind the other, of the same bytes."""
        return Line(self.call_s + other.call_s, self.byte_s + other.byte_s, name)

    def of_part(self, part: float) -> Line:
        """Of so much of the bytes."""
        return Line(self.call_s, self.byte_s * part, self.name)


class Ways:
    """What a group of one shape has of the links, by one protocol."""

    def __init__(self, links: Links, shape: Shape, protocol: str) -> None:
        self.links = links
        self.shape = shape
        self.protocol = protocol
        self.base_s = self._us("base_us")
        self.inside_s = self._us("nvlink_us")  # a hop
        self.between_s = self._us("nic_us")
        self.in_tree_s = self._us("tree_us")
        share = links[f"{protocol}.share"]
        self.nvlink = share * links["nvlink.gb_per_s"] * 1e9  # bytes/s that a GPU sends
        # A GPU has a NIC of its own, where there are as many; else they share those of the node.
        nics = min(shape.per_node, links["nic.per_node"])
        self.node = share * nics * links["nic.gb_per_s"] * 1e9  # bytes/s that leave a node
        self.nic = self.node / shape.per_node  # of a GPU of it

    def _us(self, name: str) -> float:
        return self.links[f"{self.protocol}.{name}"] * 1e-6

    @property
    def bus(self) -> float:
        """Bytes/s that a GPU passes on in rings through all ranks, each by a NIC of its own."""
        if self.shape.nodes == 1:
            return self.nvlink
        return self.node if self.shape.per_node == 1 else min(self.nvlink, self.node)

    @property
    def hop_s(self) -> float:
        """Of the longest of them."""
        return self.inside_s if self.shape.nodes == 1 else self.between_s

    def line(self, hops_s: float, byte_s: float, name: str) -> Line:
        """A call that has these hops."""
        return Line(self.base_s + hops_s, byte_s, f"{name}, {self.protocol}")

    def ring(self, turns: int) -> Line:
        """Once round all ranks, or twice: each passes on all parts but its own."""
        p, m = self.shape.ranks, self.shape.nodes
        hops = (p - m) * self.inside_s + (m - 1) * self.between_s
        return self.line(turns * hops, turns * (p - 1) / p / self.bus, "ring")

    def within_node(self) -> Ways:
        """Of the ranks of one node alone."""
        return Ways(self.links, Shape(self.shape.per_node), self.protocol)

    def across_nodes(self) -> Line:
        """An all_reduce of one rank a node, all of a node's ranks at once with a part each."""
        m = self.shape.nodes
        hops = 2 * (m - 1) * self.between_s
        return self.line(hops, 2 * (m - 1) / m / self.nic, "ring")

    def parts_between_all(self) -> Line:
        """Every rank sends each other one its part: what stays in the node, and what leaves it."""
        p, g = self.shape.ranks, self.shape.per_node
        hops = min(p - 1, MOST_CHANNELS) * self.hop_s
        leaves = (p - g) / p / self.nic if self.shape.nodes > 1 else 0.0
        return self.line(hops, max((g - 1) / p / self.nvlink, leaves), "direct")

    def through_chain(self) -> Line:
        """From one rank to all or from all to one, piece by piece through all of them."""
        hops = math.ceil(math.log2(self.shape.ranks)) * self.hop_s
        return self.line(hops, 1 / self.bus, "pipelined")

    def one_message(self) -> Line:
        """From a rank to another one; to one of another node where there are several."""
        way = self.nvlink if self.shape.nodes == 1 else self.nic
        return self.line(self.hop_s, 1 / way, "direct")


def all_reduce(ways: Ways) -> Iterator[Line]:
    """Its algorithms by one protocol."""
    g, m = ways.shape.per_node, ways.shape.nodes
    yield ways.ring(2)
    if m > 1:
        hops = 2 * ((g - 1) * ways.inside_s + math.log2(m) * ways.in_tree_s)
        yield ways.line(hops, 2 / (TREE_SHARE * ways.bus), "tree")
    if g > 1 and m > 1:
        inside = ways.within_node().ring(1)
        yield inside.then(ways.across_nodes().of_part(1 / g), "").then(
            inside, f"two levels, {ways.protocol}"
        )


def by_switch(links: Links, shape: Shape) -> Iterator[Line]:
    """An all_reduce that the switches of the nodes sum, where that was measured."""
    g, m = shape.per_node, shape.nodes
    inside = links.get(f"nvls.gb_per_s.{g}")
    if inside is None:
        return
    if m == 1:
        yield Line(links["nvls.base_us"] * 1e-6, 2 * (g - 1) / g / (inside * 1e9), "nvls")
        return
    between = links.get("nvls_tree.gb_per_s")
    if between is not None:
        hops = 2 * math.log2(m) * links["nvls_tree.hop_us"] * 1e-6
        p = shape.ranks
        base = links["nvls_tree.base_us"] * 1e-6
        yield Line(base + hops, 2 * (p - 1) / p / (between * 1e9), "nvls tree")


_BY_PROTOCOL: dict[str, Callable[[Ways], Iterator[Line]]] = {
    "all_reduce": all_reduce,
    "all_gather": lambda ways: iter([ways.ring(1)]),
    "reduce_scatter": lambda ways: iter([ways.ring(1)]),
    "all_to_all": lambda ways: iter([ways.parts_between_all()]),
    "gather": lambda ways: iter([ways.parts_between_all()]),
    "scatter": lambda ways: iter([ways.parts_between_all()]),
    "broadcast": lambda ways: iter([ways.through_chain()]),
    "reduce": lambda ways: iter([ways.through_chain()]),
    "send": lambda ways: iter([ways.one_message()]),
    "barrier": all_reduce,
}


def lines(operation: str, shape: Shape, links: Links) -> list[Line]:
    """What each algorithm and protocol takes; of one rank alone nothing.

    Raises:
        InvalidArgument: for an operation that is none of gear.emu.OPERATIONS.
    """
    check_operation(operation)
    if shape.ranks == 1:
        return [Line(0.0, 0.0, "alone")]
    found = [
        line
        for protocol in links.protocols
        for line in _BY_PROTOCOL[operation](Ways(links, shape, protocol))
    ]
    return found + (list(by_switch(links, shape)) if operation == "all_reduce" else [])


def fastest(operation: str, shape: Shape, links: Links, size: int) -> tuple[float, str]:
    """Seconds of `size` bytes by the fastest of lines(), and its name."""
    best = min(lines(operation, shape, links), key=lambda line: line.seconds(size))
    return best.seconds(size), best.name
