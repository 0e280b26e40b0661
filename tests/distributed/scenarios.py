"""Samplers x windows x tiers x localities x contents that every transport must get right."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gear
from distributed.content import Story
from gear.samplers import Fifo, Lifo, Sampler, Sequential, TopK, Uniform, Weighted

Outputs = dict[str, "gear.Step | gear.Window | gear.Derived"]

# "anchor" says in every batch which steps were drawn.
STEPS: Outputs = {
    "anchor": gear.Step(column="number"),
    "obs": gear.Step(),
    "done": gear.Step(1),
    "over": gear.Terminated(),
}
WINDOWS: Outputs = {
    "anchor": gear.Step(column="number"),
    "obs": gear.Window(-2, 2),
    "frame": gear.Window(-3, 1, pad="head"),
    "done": gear.Window(0, 3, pad="tail"),
    "far": gear.Window(-40, 1, column="number"),
    "next": gear.Step(1, column="obs"),
    "over": gear.Terminated(gear.Window(-1, 3)),
    "last": gear.IsLast(gear.Window(-1, 3, pad="head")),
}
STILL = Story()
SEQUENCES: Outputs = {
    "anchor": gear.Step(column="number"),
    "number": gear.Window(0, 20),
    "obs": gear.Window(0, 20),
    "frame": gear.Window(0, 20),
    "done": gear.Window(0, 20),
}


@dataclass(frozen=True)
class Scenario:
    """One loader over a group, and what happens between its batches.

    Attributes:
        several_nodes: two ranks a node (with two ranks: one), in place of all on one node.
        capacity: of rank 0; those of higher rank have a little more.
        update: priorities of what came are set after every batch.
    """

    name: str
    sampler: Sampler
    outputs: Outputs = field(default_factory=lambda: WINDOWS)
    batch_size: int = 7
    batches: int = 6
    packed: bool = False
    tier: str = "host"
    locality: str = "first"
    several_nodes: bool = False
    story: Story = STILL
    capacity: int = 160
    page_steps: int = 4
    evict: str = "fifo"
    prefetch: int = 1
    update: bool = True
    seed: int = 11

    def loader_arguments(self) -> dict[str, Any]:
        return {
            "sampler": self.sampler,
            "outputs": self.outputs,
            "packed": self.packed,
            "seed": self.seed,
        }

    def capacity_of(self, rank: int) -> int:
        return self.capacity + 3 * self.page_steps * rank

    def nodes(self, size: int) -> list[int]:
        if not self.several_nodes:
            return [0] * size
        return [rank // ranks_per_node(size) for rank in range(size)]


def ranks_per_node(size: int) -> int:
    """Where several nodes are emulated."""
    return 1 if size == 2 else 2


MOVING = Story(more=25)  # what is stored changes between batches, and is evicted
LARGE = 70  # items
EMPTY_RANK = Story(steps=(120, 0, 20, 3), more=12)

SCENARIOS = [
    Scenario("uniform", Uniform(), story=MOVING),
    Scenario("uniform-off", Uniform(), locality="off", several_nodes=True, story=MOVING),
    Scenario("uniform-steps", Uniform(), STEPS, batch_size=33, tier="shared", story=EMPTY_RANK),
    Scenario("uniform-packed", Uniform(), packed=True, several_nodes=True, prefetch=2),
    Scenario("uniform-mapped", Uniform(), tier="shared", story=MOVING, evict="lifo"),
    Scenario("uniform-mapped-nodes", Uniform(), tier="shared", several_nodes=True, story=MOVING),
    Scenario("uniform-episodes", Uniform(unit="episode"), SEQUENCES, story=MOVING, prefetch=0),
    Scenario("weighted", Weighted(), story=MOVING, several_nodes=True),
    Scenario("weighted-off", Weighted(alpha=1.0, beta=1.0), tier="shared", locality="off"),
    Scenario("weighted-mapped", Weighted(), tier="shared", story=EMPTY_RANK, prefetch=3),
    Scenario("weighted-packed", Weighted(alpha=0.9, beta=0.5), packed=True, story=EMPTY_RANK),
    Scenario("weighted-by-all", Weighted(normalize="buffer"), story=MOVING, several_nodes=True),
    Scenario("weighted-evict", Weighted(), evict="lowest_priority", story=MOVING, prefetch=0),
    Scenario("weighted-nodes", Weighted(), batch_size=20, several_nodes=True, story=EMPTY_RANK),
    Scenario("weighted-episodes", Weighted(unit="episode"), SEQUENCES, packed=True, story=MOVING),
    Scenario("shuffled", Sequential(), several_nodes=True, batch_size=9, batches=12),
    Scenario(
        "shuffled-mapped", Sequential(drop_last=True), tier="shared", locality="off", batches=9
    ),
    Scenario("shuffled-episodes", Sequential(unit="episode"), SEQUENCES, batch_size=3, batches=9),
    Scenario("in-order", Sequential(shuffle=False), tier="shared", several_nodes=True, batches=12),
    Scenario("in-order-packed", Sequential(shuffle=False, drop_last=True), packed=True, batches=9),
    Scenario(
        "in-order-episodes", Sequential(shuffle=False, unit="episode"), SEQUENCES, batch_size=2
    ),
    Scenario("fifo", Fifo(), several_nodes=True, story=MOVING),
    Scenario("fifo-episodes", Fifo(unit="episode"), SEQUENCES, packed=True, batch_size=3),
    Scenario("lifo", Lifo(), tier="shared", locality="off", story=MOVING),
    Scenario("lifo-episodes", Lifo(unit="episode"), SEQUENCES, batch_size=3, story=MOVING),
    Scenario("topk", TopK(), tier="shared", several_nodes=True, story=MOVING),
    Scenario("topk-off", TopK(), STEPS, batch_size=64, locality="off", story=EMPTY_RANK),
    Scenario("topk-episodes", TopK(unit="episode"), SEQUENCES, batch_size=3, story=MOVING),
    # Of more than 64 KiB: a thread of its own carries these batches out.
    Scenario("uniform-large", Uniform(), SEQUENCES, LARGE, several_nodes=True, story=MOVING),
    Scenario("weighted-large", Weighted(), SEQUENCES, LARGE, tier="shared", several_nodes=True),
    Scenario("lifo-large", Lifo(), SEQUENCES, LARGE, story=MOVING, prefetch=2, capacity=400),
]
