"""What the ranks of a group must get: the batches of one rank that holds the content of all.

The buffer of that rank is built anew for every draw, so that the ranks' contents may change in any
way. Its steps lie in the order of (rank, slot), which decides the step that a draw hits, and its
episodes are created in the order in which the group takes them. What it delivers is checked against
the slow reference before anything is compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numbered
import numpy as np
import reference
from script import check_batch

import gear
from distributed.content import RANK_STRIDE, SCHEMA, ModelShard, updated_priorities
from distributed.scenarios import Scenario

Arrays = dict[str, np.ndarray]
EPISODE_BIT = 1 << 62
SLOT_MASK = (1 << 32) - 1
LAST = 1 << 40  # place of a page that no id names


def arrays_of(batch: Any, packed: bool) -> Arrays:
    """Every array of a batch of NumPy arrays, copied, by a name that says what it is."""
    arrays = {"ids": batch.ids, "probabilities": batch.probabilities, "weights": batch.weights}
    for name in batch:
        arrays[f"data {name}"] = batch[name]
        arrays[f"lengths {name}"] = batch.lengths[name]
        if packed:
            arrays[f"cu_seqlens {name}"] = batch.cu_seqlens[name]
        else:
            arrays[f"masks {name}"] = batch.masks[name]
    return {name: np.array(array) for name, array in arrays.items()}


def items_of(arrays: Arrays, chosen: np.ndarray) -> Arrays:
    """The batch of the chosen items of a batch, without ids."""
    out = {}
    for key, array in arrays.items():
        kind, _, name = key.partition(" ")
        if kind == "data" and f"cu_seqlens {name}" in arrays:
            ends = arrays[f"cu_seqlens {name}"]
            out[key] = np.concatenate([array[:0], *(array[ends[i] : ends[i + 1]] for i in chosen)])
        elif kind == "cu_seqlens":
            lengths = arrays[f"lengths {name}"][chosen]
            out[key] = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        elif kind != "ids":
            out[key] = array[chosen]
    return out


class AllRanks:
    """The contents of all ranks by the reference, turn by turn."""

    def __init__(self, scenario: Scenario, size: int) -> None:
        self.scenario = scenario
        self.stories = [scenario.story.of(rank) for rank in range(size)]
        self.shards = [
            ModelShard(scenario.capacity_of(rank), scenario.page_steps, scenario.evict)
            for rank in range(size)
        ]

    def write(self) -> None:
        for shard, story in zip(self.shards, self.stories, strict=True):
            shard.play(next(story))

    def update(self, numbers: np.ndarray, turn: int) -> None:
        priorities = updated_priorities(numbers, turn)
        for number, priority in zip(numbers.tolist(), priorities.tolist(), strict=True):
            self.shard_of(number).update(number, priority, self.scenario.sampler.unit)

    def shard_of(self, number: int) -> ModelShard:
        return self.shards[(number - 1) // RANK_STRIDE]

    def episodes(self) -> list[tuple[int, reference.Episode]]:
        """(rank, episode) in the order in which the group takes them."""
        both = [
            (rank, episode)
            for rank, shard in enumerate(self.shards)
            for episode in shard.model.episodes
            if episode.begin < episode.end
        ]
        if isinstance(self.scenario.sampler, gear.Fifo | gear.Lifo):
            both.sort(key=lambda entry: (entry[1].uid, entry[0]))
        return both

    def in_one_buffer(self, slots: list[dict[tuple[int, int], int]]) -> gear.ReplayBuffer:
        """`slots`: by rank, of (uid, step)."""
        page_steps = self.scenario.page_steps
        pages = [
            (rank, slots[rank].get((episode.uid, step), LAST) // page_steps)
            for rank, episode in self.episodes()
            for step in range(
                episode.begin, episode.end + (episode.closing is not None), page_steps
            )
        ]
        buffer = gear.ReplayBuffer(
            SCHEMA, len(pages) * page_steps, page_steps=page_steps, evict="lowest_priority"
        )
        # The largest priority of steps and of episodes is that which the ranks have seen.
        seen = max(shard.model.max_priority for shard in self.shards) or 1.0
        weight = max(shard.model.max_weight for shard in self.shards)
        # One step a page; of which the first to be evicted lies where the first page belongs.
        with buffer.writer() as writer:
            for _ in pages:
                writer.append(priority=seen, **numbered.rows(np.array(0)))
                writer.end_episode(weight=weight)
        ids = np.concatenate([episode.ids for episode in buffer.episodes()])
        by_place = sorted(range(len(pages)), key=pages.__getitem__)
        page_of_turn = np.argsort(by_place)  # where the page lies that is written as the t-th
        at_page = {int(i & SLOT_MASK) // page_steps: i for i in ids}
        buffer.update(
            np.array([at_page[page] | EPISODE_BIT for page in page_of_turn.tolist()]),
            np.arange(len(pages)) / len(pages) * (seen / 2),
        )
        self._write_all(buffer, seen)
        return buffer

    def _write_all(self, buffer: gear.ReplayBuffer, high: float) -> None:
        """`high`: a priority above those that pages are ordered by."""
        self.writers = []  # open episodes stay open as long as their writers live
        for _, episode in self.episodes():
            writer = buffer.writer()
            self.writers.append(writer)
            steps = range(episode.begin, episode.end)
            numbers = np.array([episode.values[step]["number"] for step in steps])
            writer.extend(priority=np.full(len(steps), high), **numbered.rows(numbers))
            if episode.ended:
                writer.end_episode(terminated=episode.state == "terminated", final=episode.closing)
        for (_, episode), stored in zip(self.episodes(), buffer.episodes(), strict=True):
            steps = range(episode.begin, episode.end)
            buffer.update(stored.ids, np.array([episode.priorities[step] for step in steps]))
            if episode.weight is not None:
                buffer.update(stored.ids[:1] | EPISODE_BIT, np.array([episode.weight]))
        assert len(buffer) == sum(len(shard.model) for shard in self.shards)


def expected_batches(
    scenario: Scenario, size: int, layouts: Iterator[list[dict[tuple[int, int], int]]]
) -> list[Arrays | None]:
    """The global batches in the order of the draws; None: the end of an epoch.

    `layouts`: what the ranks' slots were before each call of next.
    """
    ranks = AllRanks(scenario, size)
    ranks.write()
    delivered: list[Arrays | None] = []
    state: dict[str, Any] | None = None
    for turn, slots in enumerate(layouts):
        with (
            ranks.in_one_buffer(slots) as buffer,
            buffer.loader(
                size * scenario.batch_size,
                prefetch=0,
                framework="numpy",
                **scenario.loader_arguments(),
            ) as loader,
        ):
            if state is not None:
                # The content is the same one, in another buffer.
                state["buffer"] = loader.state_dict()["buffer"]
                loader.load_state_dict(state)
            while len(delivered) < turn + 1 + scenario.prefetch:
                delivered.append(_next_checked(loader, ranks))
            state = loader.state_dict()
        ranks.write()
        batch = delivered[turn]
        if batch is not None and scenario.update:
            ranks.update(batch["data anchor"], turn)
    return delivered[: turn + 1]


def _next_checked(loader: gear.Loader, ranks: AllRanks) -> Arrays | None:
    batch = next(loader, None)
    if batch is None:
        return None
    scenario = ranks.scenario
    anchors = []
    for number in batch["anchor"].reshape(-1).tolist():
        anchor = ranks.shard_of(number).find(number)
        assert anchor is not None, f"{number} is not stored"
        anchors.append(anchor)
    check_batch(ranks.shards[0].model, batch, anchors, scenario.outputs, scenario.packed)
    return arrays_of(batch, scenario.packed)
