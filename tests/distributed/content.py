"""What each rank stores before the first batch and between batches, on buffers and on models.

Every step has a number of its own over all ranks, and its values follow from it (numbered.py), so a
delivered row says which step of which rank it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numbered
import numpy as np
import reference

import gear

SCHEMA = numbered.SCHEMA
COLUMNS = [reference.Column(c.name, c.shape, c.dtype) for c in SCHEMA]
RANK_STRIDE = 10_000_000  # numbers of rank r: r * RANK_STRIDE + 1, + 2, ...
PRIORITIES = np.array([0.0, 0.125, 0.5, 1.0, 1.75, 3.0, 40.0], np.float32)


def owner_of(numbers: np.ndarray) -> np.ndarray:
    return (np.asarray(numbers) - 1) // RANK_STRIDE


@dataclass(frozen=True)
class Extend:
    writer: int
    first: int  # number of the first step
    priorities: np.ndarray  # one a step


@dataclass(frozen=True)
class End:
    writer: int
    terminated: bool
    weight: float | None
    final: int | None  # number of the closing step, which has the column "obs" only


Call = Extend | End


@dataclass(frozen=True)
class Story:
    """How much every rank stores.

    Attributes:
        steps: by rank, before the first batch, about; ranks beyond the list have as many as its
            last entry says.
        more: steps a rank adds between two batches, about; 0: the content does not change.
        longest: of the episodes.
        open: leave the last episode of every rank open.
    """

    steps: tuple[int, ...] = (70, 50, 30, 60)
    more: int = 0
    longest: int = 17
    open: bool = True

    def of(self, rank: int, seed: int = 0) -> Iterator[list[Call]]:
        """What the rank stores first, then between two batches, and so on."""
        rng = np.random.default_rng([seed, rank, 5])
        number = rank * RANK_STRIDE + 1
        steps = self.steps[min(rank, len(self.steps) - 1)]
        while True:
            calls: list[Call] = []
            done = 0
            while done < steps:
                length = int(min(rng.integers(1, self.longest + 1), steps - done))
                calls.append(Extend(0, number, rng.choice(PRIORITIES, length)))
                number += length
                done += length
                if done < steps or not self.open:
                    weight = float(rng.choice(PRIORITIES[1:])) if rng.random() < 0.3 else None
                    final = number if rng.random() < 0.5 else None
                    calls.append(End(0, bool(rng.random() < 0.5), weight, final))
                    number += 1
            yield calls
            # Ranks with nothing at the start stay so: their share comes from the others for ever.
            steps = int(rng.integers(1, 2 * self.more)) if self.more and steps else 0


class StoredShard:
    """A rank's part of the buffer under test."""

    def __init__(self, buffer: gear.ReplayBuffer) -> None:
        self.buffer = buffer
        self.writers: dict[int, gear.Writer] = {}

    def play(self, calls: list[Call]) -> None:
        for call in calls:
            if call.writer not in self.writers:
                self.writers[call.writer] = self.buffer.writer()
            writer = self.writers[call.writer]
            if isinstance(call, Extend):
                numbers = np.arange(call.first, call.first + len(call.priorities))
                writer.extend(priority=call.priorities, **numbered.rows(numbers))
            else:
                writer.end_episode(
                    terminated=call.terminated, weight=call.weight, final=closing(call.final)
                )


class ModelShard:
    """The same by the slow reference."""

    def __init__(self, capacity: int, page_steps: int, evict: str) -> None:
        self.model = reference.Buffer(COLUMNS, capacity, page_steps, evict)
        self.open: dict[int, reference.Episode] = {}
        self.uid_of: dict[int, int] = {}  # number of a step -> uid of its episode

    def play(self, calls: list[Call]) -> None:
        for call in calls:
            if isinstance(call, Extend):
                if call.writer not in self.open:
                    self.open[call.writer] = self.model.open_episode()
                episode = self.open[call.writer]
                values = numbered.rows(np.arange(call.first, call.first + len(call.priorities)))
                for i, priority in enumerate(call.priorities):
                    step = {name: rows[i] for name, rows in values.items()}
                    self.model.append(episode, step, float(priority))
                    self.uid_of[call.first + i] = episode.uid
            else:
                self.model.end_episode(
                    self.open.pop(call.writer),
                    terminated=call.terminated,
                    weight=call.weight,
                    final=closing(call.final),
                )

    def find(self, number: int) -> tuple[reference.Episode, int] | None:
        """The anchor of that number, or None where it has been evicted."""
        uid = self.uid_of[number]
        for episode in self.model.episodes:
            if episode.uid == uid and episode.begin < episode.end:
                first = int(episode.values[episode.begin]["number"])
                step = episode.begin + number - first
                return (episode, step) if number >= first else None
        return None

    def update(self, number: int, priority: float, unit: str) -> None:
        anchor = self.find(number)
        if anchor is None:
            return
        if unit == "step":
            self.model.update_step(anchor[0].uid, anchor[1], priority)
        else:
            anchor[0].weight = priority
            self.model.max_weight = max(self.model.max_weight, priority)


def closing(number: int | None) -> dict[str, np.ndarray] | None:
    return None if number is None else {"obs": numbered.rows(np.array(number))["obs"]}


def updated_priorities(numbers: np.ndarray, turn: int) -> np.ndarray:
    """What a learner would set: the same for a step whichever rank it went to."""
    return PRIORITIES[(numbers * 31 + turn * 7) % 11 % len(PRIORITIES)]
