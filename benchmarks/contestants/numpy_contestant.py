"""NumPy by hand: one array per column, next_obs stored too; its fastest way to gather rows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from experience import STACK
from numpy.typing import NDArray
from protocol import Contestant, Tensors, serve
from workloads import Workload

Array = NDArray[np.generic]


class Numpy(Contestant):
    name = "numpy"

    def fill(self) -> None:
        self.rng = np.random.default_rng(1)
        if self.data.is_frames:
            self.columns: dict[str, Array] = {"frames": self.data.observations.copy()}
        else:
            self.columns = self.data.transitions()

    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())

    def uniform(self, work: Workload) -> Callable[[], Tensors]:
        return self._fastest(
            self.columns, lambda: self.rng.integers(0, self.data.num_steps, work.items)
        )

    def slices(self, work: Workload) -> Callable[[], Tensors]:
        steps, span = self.data.episode_steps, np.arange(work.length)
        columns = {name: column for name, column in self.columns.items() if name != "next_obs"}

        def rows() -> NDArray[np.int64]:
            episode = self.rng.integers(0, self.data.num_episodes, work.items // work.length)
            first = self.rng.integers(0, steps - work.length + 1, len(episode))
            return ((episode * steps + first)[:, None] + span).reshape(-1)

        return self._fastest(columns, rows)

    def frames(self, work: Workload) -> Callable[[], Tensors]:
        steps = self.data.episode_steps
        frames = self.columns["frames"].reshape(-1, 84, 84)
        out = {
            name: np.empty((work.items, STACK, 84, 84), np.uint8) for name in ("obs", "next_obs")
        }
        span = np.arange(1 - STACK, 1)

        def call() -> Tensors:
            episode = self.rng.integers(0, self.data.num_episodes, work.items)
            last = self.rng.integers(STACK - 1, steps, work.items)
            rows = (episode * (steps + 1) + last)[:, None] + span
            np.take(frames, rows, 0, out["obs"], "clip")
            np.take(frames, rows + 1, 0, out["next_obs"], "clip")
            return {name: torch.from_numpy(array) for name, array in out.items()}

        return call

    def insert_single(self, work: Workload) -> Callable[[], Tensors]:
        """The loop of a hand-written ring: one assignment per column."""
        steps = self.data.single_steps(work.items)
        columns, capacity, place = self.columns, self.data.num_steps, [0]

        def call() -> Tensors:
            at = place[0]
            for step in steps:
                for name, value in step.items():
                    columns[name][at] = value
                at = (at + 1) % capacity
            place[0] = at
            return {}

        return call

    def vector_step(self, work: Workload) -> Callable[[], Tensors]:
        """Rows of one ring, whose environments take turns: one assignment per column."""
        batch = self.data.block(work.items)
        columns, capacity, place = self.columns, self.data.num_steps, [0]

        def call() -> Tensors:
            at = place[0] if place[0] + work.items <= capacity else 0
            for name, values in batch.items():
                columns[name][at : at + work.items] = values
            place[0] = at + work.items
            return {}

        return call

    extend = vector_step

    def save(self, work: Workload) -> Callable[[], Tensors]:
        """np.save of the stored columns (next_obs left out), with fsync."""

        def call() -> Tensors:
            for name in ("obs", "action", "reward", "done"):
                with open(self.scratch / f"{name}.npy", "wb") as file:
                    np.save(file, self.columns[name])
                    os.fsync(file.fileno())
            return {}

        return call

    def load(self, work: Workload) -> Callable[[], Tensors]:
        self.save(work)()

        def call() -> Tensors:
            for name in ("obs", "action", "reward", "done"):
                np.load(self.scratch / f"{name}.npy")
            return {}

        return call

    def _fastest(
        self, columns: dict[str, Array], draw: Callable[[], NDArray[np.int64]]
    ) -> Callable[[], Tensors]:
        """Try each way of gathering the drawn rows of every column and return the quickest call."""
        rows = len(draw())
        out = {name: np.empty((rows, *col.shape[1:]), col.dtype) for name, col in columns.items()}
        ways: dict[str, Callable[[str, Array, Any], Array]] = {
            "column[rows]": lambda name, column, at: column[at],
            "take": lambda name, column, at: np.take(column, at, 0),
            "take(out=)": lambda name, column, at: np.take(column, at, 0, out[name]),
            "take(out=, mode='clip')": lambda name, column, at: np.take(
                column, at, 0, out[name], "clip"
            ),
        }

        def bind(way: Callable[[str, Array, Any], Array]) -> Callable[[], Tensors]:
            def call() -> Tensors:
                at = draw()
                return {n: torch.from_numpy(way(n, col, at)) for n, col in columns.items()}

            return call

        calls = {name: bind(way) for name, way in ways.items()}
        _, self.variant = quickest(calls)
        return calls[self.variant]


def quickest(ways: dict[str, Callable[[], Tensors]]) -> tuple[float, str]:
    """Median seconds and name of the best way over 40 calls, the ways taking turns."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(40):
        for name, call in ways.items():
            start = time.perf_counter()
            call()
            spent[name].append(time.perf_counter() - start)
    return min((float(np.median(times)), name) for name, times in spent.items())


if __name__ == "__main__":
    serve(Numpy())
