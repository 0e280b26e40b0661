"""What `ReplayBuffer.stats` and `Loader.stats` tell: dicts whose keys type checkers know."""

from __future__ import annotations

from typing import TypedDict


class BufferStats(TypedDict):
    """Counts since the buffer was made, and what it holds.

    Attributes:
        anchors: steps that a loader whose outputs do not look ahead may draw.
        bytes: of memory held: pages, index and trees.
        steps_sampled: draws, each as often as it was made.
        stale_updates: priorities given for steps that had been evicted.
        saturated_weights: priorities beyond what a weight can hold, cut to that.
    """

    steps: int
    episodes: int
    anchors: int
    pages: int
    pages_free: int
    bytes: int
    max_priority: float
    steps_inserted: int
    steps_evicted: int
    steps_sampled: int
    stale_updates: int
    saturated_weights: int


class LoaderStats(TypedDict):
    """What was delivered so far, and how.

    Attributes:
        bytes: read from the store; where a GPU gathers, rows of padding count.
        wait_s: ``next`` waited for so long.
        gather_s: spent copying; where a GPU gathers, reckoned from the batches whose time was
            looked at, and 0 over a group.
        gb_per_s: of the copying.
        path: ``"host"``, ``"staged"``, ``"zero_copy"`` or ``"device"``.
        selection: ``"host"`` or ``"device"``.
        hits: items by the tier that they were read from.
        local_bytes, same_node_bytes, remote_bytes: of ``bytes``, those that this rank holds, the
            others of its node, and those of other nodes.
        message_bytes: those that were sent here and not read in place.
    """

    batches: int
    items: int
    bytes: int
    wait_s: float
    gather_s: float
    gb_per_s: float
    path: str
    selection: str
    bytes_by_path: dict[str, int]
    hits: dict[str, int]
    local_bytes: int
    same_node_bytes: int
    remote_bytes: int
    message_bytes: int
