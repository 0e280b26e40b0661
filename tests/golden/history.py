"""What is stored, updated and evicted in a golden case: the same calls on every machine.

Numbers come from Python's Mersenne Twister by `random()` alone, whose sequence Python promises, and
values from the steps' numbers (numbered.py), so that no version of NumPy or Python has a part.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

import numbered
import numpy as np
import numpy.typing as npt

import gear

SCHEMA = numbered.SCHEMA
RANK_STRIDE = 1_000_000  # numbers of rank r: r * RANK_STRIDE + 1, + 2, ...
PRIORITIES = [0.0, 0.125, 0.5, 1.0, 1.75, 3.0, 40.0]
WRITERS = 3
Choice = TypeVar("Choice")


class History:
    """A rank's part: three writers in turn, whose episodes are of one step to four pages.

    Episodes terminate or are truncated, with and without a closing step, which lacks columns, and
    with and without a weight. Steps come one by one or several at once, with and without a
    priority. Updates are of stored and of evicted steps.
    """

    def __init__(self, buffer: gear.ReplayBuffer, rank: int) -> None:
        self._buffer = buffer
        self._rng = random.Random(rank)
        self._number = rank * RANK_STRIDE + 1
        self._writers = [buffer.writer() for _ in range(WRITERS)]
        self._left = [0] * WRITERS  # steps until the writer's episode ends
        self._turn = 0
        self._former: list[int] = []  # ids of steps, some of which are evicted later

    def begin(self, halves: int = 3) -> None:
        """Stores so many halves of what there is room for; updates after each."""
        half = self._buffer.capacity // 2
        for _ in range(halves):
            self.write(half)
            ids = self._ids()
            self._former += ids[:10] + ids[-10:]
            self.update()

    def write(self, steps: int) -> None:
        """About so many."""
        until = self._number + steps
        while self._number < until:
            self._write_some(self._turn % WRITERS)
            self._turn += 1

    def end(self) -> None:
        """Ends the open episodes."""
        for place, writer in enumerate(self._writers):
            if self._left[place] > 0:
                self._left[place] = 0
                self._end(writer)

    def update(self) -> None:
        """Every fourth stored step, and steps that may be gone."""
        ids = self._ids()[self._turn % 4 :: 4] + self._former
        self._buffer.update(np.array(ids, np.int64), self._priorities(len(ids)))

    def _write_some(self, place: int) -> None:
        writer = self._writers[place]
        if self._left[place] == 0:
            self._left[place] = 1 + self._below(4 * self._buffer.page_steps)
        steps = min(1 + self._below(self._buffer.page_steps + 2), self._left[place])
        rows = numbered.rows(self._take_numbers(steps))
        given = self._rng.random() < 0.7
        if steps == 1:
            one = {name: values[0] for name, values in rows.items()}
            writer.append(priority=self._choose(PRIORITIES) if given else None, **one)
        else:
            writer.extend(priority=self._priorities(steps) if given else None, **rows)
        self._left[place] -= steps
        if self._left[place] == 0:
            self._end(writer)

    def _end(self, writer: gear.Writer) -> None:
        terminated = self._rng.random() < 0.5
        weight = self._choose(PRIORITIES[1:]) if self._rng.random() < 0.3 else None
        final = None
        if self._rng.random() < 0.5:
            rows = numbered.rows(self._take_numbers(1))
            final = {name: rows[name][0] for name in ("obs", "frame")}
        writer.end_episode(terminated=terminated, weight=weight, final=final)

    def _ids(self) -> list[int]:
        return [int(one) for episode in self._buffer.episodes() for one in episode.ids]

    def _take_numbers(self, count: int) -> npt.NDArray[np.int64]:
        first, self._number = self._number, self._number + count
        return np.arange(first, self._number)

    def _priorities(self, count: int) -> npt.NDArray[np.float32]:
        return np.array([self._choose(PRIORITIES) for _ in range(count)], np.float32)

    def _below(self, limit: int) -> int:
        return int(self._rng.random() * limit)

    def _choose(self, values: Sequence[Choice]) -> Choice:
        return values[self._below(len(values))]


def learnt_priorities(ids: npt.NDArray[np.int64], turn: int) -> npt.NDArray[np.float32]:
    """What a learner would set: the same for the same ids."""
    return ((ids * 31 + turn * 97) % 4093).astype(np.float32) * np.float32(1 / 256)
