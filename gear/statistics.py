"""The results of `ReplayBuffer.stats` and `Loader.stats`: dicts whose keys type checkers know."""

from __future__ import annotations

from typing import TypedDict


class BufferStats(TypedDict):
    """The contents of a buffer, and counts since it was made.

    Attributes:
        anchors: steps that a loader may draw if its outputs do not look ahead.
        bytes: bytes of memory held: pages, index and trees.
        steps_sampled: draws that were delivered; a step counts each time. Over a group a draw
            counts on the rank that stores the step, or, where GPUs select, on the one that asked.
        stale_updates: priorities set for steps that had been evicted.
        max_priority: the largest of a step so far, which steps without one get; 0: none above 0
            yet, and they get 1.
        saturated_weights: how often a priority above 0 was too small beside the largest for a
            weight of its own; again wherever weights are computed anew: see `Weighted`.
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
    """Counts and times of the batches delivered so far.

    Attributes:
        bytes: bytes read from the store; where a GPU gathers, rows of padding count.
        wait_s: seconds that ``next`` waited.
        gather_s: seconds of copying. Where a GPU gathers, an estimate from the batches that were
            timed; over a group of GPUs, 0.
        gb_per_s: speed of the copying.
        path: ``"host"``, ``"staged"``, ``"zero_copy"`` or ``"device"``.
        selection: ``"host"`` or ``"device"``: where steps are chosen.
        hits: items, by the tier that held them.
        local_bytes, same_node_bytes, remote_bytes: the parts of ``bytes`` that this rank, other
            ranks of its node, and ranks of other nodes held.
        message_bytes: the part of ``bytes`` that was sent to this rank, not read in place.
        one_sided_bytes: the part of ``bytes`` that this rank read out of its owner's memory
            (transports ``verbs`` and ``fabric``).
        packed_bytes: the part of ``one_sided_bytes`` that its owner had packed before.
        pack_below: owners pack runs of rows that are shorter than so many bytes; 0: none.
        repeated, stale: of a loader that pulls: items that were read again, because their owner
            used a page of theirs again meanwhile, and those of them that were drawn anew, because
            their step was gone.
        remote_path: how rows of ranks that this one cannot map came: ``"verbs"``, ``"fabric"``,
            ``"nccl"``, ``"messages"``; ``""`` before there were any.
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
    one_sided_bytes: int
    packed_bytes: int
    pack_below: int
    repeated: int
    stale: int
    remote_path: str
