"""How the ranks of a group lie on nodes."""

from __future__ import annotations

from dataclasses import dataclass

from gear.arguments import check_count


@dataclass(frozen=True, order=True)
class Shape:
    """A group with as many ranks on each of its nodes.

    Args:
        per_node: ranks on a node, 1 or more.
        nodes: 1 or more.

    Raises:
        InvalidArgument: for other values.
    """

    per_node: int
    nodes: int = 1

    def __post_init__(self) -> None:
        check_count("[emu] per_node of a Shape", self.per_node)
        check_count("[emu] nodes of a Shape", self.nodes)

    @property
    def ranks(self) -> int:
        """Of all nodes."""
        return self.per_node * self.nodes

    def __str__(self) -> str:
        nodes = "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        return f"{self.per_node} a node on {nodes}"
