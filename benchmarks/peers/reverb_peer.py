"""Reverb: a server in this process and a dataset that samples it over its local connection.

Items are written one by one through a trajectory writer, which is slow: 20,000 of the 1e6
transitions are stored (to its advantage: they fit into caches), and a sequence is an item that
starts at every tenth step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import reverb
import tensorflow as tf
import torch
from protocol import Contestant, Tensors, serve
from workloads import Workload

EPISODES = 20


class Reverb(Contestant):
    name = "reverb"
    packages = ("dm-reverb", "tensorflow")

    def fill(self) -> None:
        episodes = range(min(EPISODES, self.data.num_episodes))
        self.episodes = [self._episode(e) for e in episodes]
        length = 5 if self.data.is_frames else 1
        self._serve(length, 1, reverb.selectors.Uniform())
        self.stored_steps = len(self.episodes) * self.data.episode_steps

    def _episode(self, e: int) -> list[dict[str, Any]]:
        columns: dict[str, Any] = dict(self.data.episode(e))
        if not self.data.is_frames:
            columns["next_obs"] = self.data.observations[e, 1:]
        return [{n: c[t] for n, c in columns.items()} for t in range(self.data.episode_steps)]

    def _serve(self, length: int, every: int, sampler: Any) -> None:
        """Start a server with one table and write all items of `length` consecutive steps."""
        step = self.episodes[0][0]
        signature = {
            name: tf.TensorSpec([length, *np.shape(value)], np.asarray(value).dtype)
            for name, value in step.items()
        }
        fifo, at_least_one = reverb.selectors.Fifo(), reverb.rate_limiters.MinSize(1)
        table = reverb.Table(
            "items", sampler, fifo, max_size=10**6, rate_limiter=at_least_one, signature=signature
        )
        self.server = reverb.Server(tables=[table])
        self.client = reverb.Client(f"localhost:{self.server.port}")
        for episode in self.episodes:
            with self.client.trajectory_writer(num_keep_alive_refs=length) as writer:
                self._write(writer, episode, length, every)

    def _write(self, writer: Any, steps: list[dict[str, Any]], length: int, every: int) -> None:
        for t, step in enumerate(steps):
            writer.append(step)
            if t + 1 >= length and (t + 1 - length) % every == 0:
                window = {name: column[-length:] for name, column in writer.history.items()}
                writer.create_item("items", 1.0 + t % 7, window)
        writer.flush()

    def _samples(self, batch: int) -> Any:
        dataset = reverb.TrajectoryDataset.from_table_signature(
            f"localhost:{self.server.port}", "items", 2 * batch
        )
        return iter(dataset.batch(batch, drop_remainder=True).prefetch(2))

    def _tensors(self, sample: Any) -> Tensors:
        return {name: torch.from_numpy(value.numpy()) for name, value in sample.data.items()}

    def uniform(self, work: Workload) -> Callable[[], Tensors]:
        samples = self._samples(work.items)
        return lambda: {n: t[:, 0] for n, t in self._tensors(next(samples)).items()}

    def prioritised(self, work: Workload) -> Callable[[], Tensors]:
        self._serve(1, 1, reverb.selectors.Prioritized(0.6))
        samples = self._samples(work.items)
        priorities = np.random.default_rng(4).random(work.items) + 0.01

        def call() -> Tensors:
            sample = next(samples)
            keys = sample.info.key.numpy()
            self.client.mutate_priorities("items", dict(zip(keys, priorities, strict=True)))
            return {n: t[:, 0] for n, t in self._tensors(sample).items()}

        return call

    def slices(self, work: Workload) -> Callable[[], Tensors]:
        for episode in self.episodes:
            for step in episode:
                step.pop("next_obs", None)
        self._serve(work.length, 10, reverb.selectors.Uniform())
        samples = self._samples(work.items // work.length)
        return lambda: self._tensors(next(samples))

    def frames(self, work: Workload) -> Callable[[], Tensors]:
        samples = self._samples(work.items)

        def call() -> Tensors:
            frames = self._tensors(next(samples))["obs"]
            return {"obs": frames[:, :4], "next_obs": frames[:, 1:]}

        return call

    def vector_step(self, work: Workload) -> Callable[[], Tensors]:
        """A trajectory writer an environment; the call ends when the server has all items."""
        self.episodes = [self._episode(0)]
        self._serve(1, 1, reverb.selectors.Uniform())
        writers = [self.client.trajectory_writer(num_keep_alive_refs=1) for _ in range(work.items)]
        pairs = list(zip(writers, self.episodes[0], strict=False))

        def call() -> Tensors:
            for writer, step in pairs:
                writer.append(step)
                window = {name: column[-1:] for name, column in writer.history.items()}
                writer.create_item("items", 1.0, window)
            for writer in writers:
                writer.flush()
            return {}

        return call

    def insert_single(self, work: Workload) -> Callable[[], Tensors]:
        """One writer, and an item a step: it has no call for many; so in extend."""
        self.variant = f"{work.items} calls of append"
        self.episodes = [self._episode(0)]
        self._serve(1, 1, reverb.selectors.Uniform())
        steps = self.episodes[0][: work.items]

        def call() -> Tensors:
            with self.client.trajectory_writer(num_keep_alive_refs=1) as writer:
                self._write(writer, steps, 1, 1)
            return {}

        return call

    extend = insert_single


if __name__ == "__main__":
    serve(Reverb())
