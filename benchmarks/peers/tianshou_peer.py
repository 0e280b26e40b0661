"""tianshou: ReplayBuffer and PrioritizedReplayBuffer; frame stacks by its stack_num."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from protocol import Contestant, Tensors, serve
from tianshou.data import Batch, PrioritizedReplayBuffer, ReplayBuffer, VectorReplayBuffer
from workloads import Workload

NAMES = {"obs": "obs", "next_obs": "obs_next", "action": "act", "reward": "rew", "done": "done"}


class Tianshou(Contestant):
    name = "tianshou"
    packages = ("tianshou",)

    def fill(self) -> None:
        if self.data.is_frames:
            # Single frames: the stack and its successor are gathered from them.
            self.buffer = ReplayBuffer(self.data.num_steps, stack_num=4, ignore_obs_next=True)
            frames = self.data.observations[:, :-1].reshape(-1, 84, 84)
            stored: dict[str, Any] = {"obs": frames, "done": self.data.done.reshape(-1)}
            stored |= {"action": np.zeros(len(frames), np.int64)}
            stored |= {"reward": self.data.reward.reshape(-1)}
            self._store(self.buffer, stored)
        else:
            self.buffer = ReplayBuffer(self.data.num_steps)
            self._store(self.buffer, self.data.transitions())

    def _store(self, buffer: ReplayBuffer, columns: dict[str, Any]) -> None:
        named = {NAMES[name]: column for name, column in columns.items()}
        ends = {"terminated": columns["done"], "truncated": np.zeros_like(columns["done"])}
        buffer.set_batch(Batch(**named, **ends))
        buffer._size = len(columns["done"])

    def uniform(self, work: Workload) -> Callable[[], Tensors]:
        return lambda: self._tensors(self.buffer.sample(work.items)[0])

    def _tensors(self, batch: Batch) -> Tensors:
        return {name: torch.from_numpy(batch[key]) for name, key in NAMES.items()}

    def weighted(self, work: Workload) -> Callable[[], Tensors]:
        buffer = self._prioritised()
        return lambda: self._tensors(buffer.sample(work.items)[0])

    def prioritised(self, work: Workload) -> Callable[[], Tensors]:
        buffer = self._prioritised()
        priorities = np.random.default_rng(4).random(work.items, np.float32) + 0.01

        def call() -> Tensors:
            batch, rows = buffer.sample(work.items)
            buffer.update_weight(rows, priorities)
            return self._tensors(batch)

        return call

    def _prioritised(self) -> PrioritizedReplayBuffer:
        count = self.data.num_steps
        buffer = PrioritizedReplayBuffer(count, alpha=0.6, beta=0.4)
        self._store(buffer, self.data.transitions())
        buffer.update_weight(np.arange(count), np.random.default_rng(2).random(count) + 0.01)
        return buffer

    def frames(self, work: Workload) -> Callable[[], Tensors]:
        def call() -> Tensors:
            batch = self.buffer.sample(work.items)[0]
            pair = {"obs": batch.obs, "next_obs": batch.obs_next}
            return {name: torch.from_numpy(array) for name, array in pair.items()}

        return call

    def insert_single(self, work: Workload) -> Callable[[], Tensors]:
        """It adds one step of each environment at a time; so in extend."""
        self.variant = f"{work.items} calls of add"
        steps = [self._batch(step) for step in self.data.single_steps(work.items)]

        def call() -> Tensors:
            for step in steps:
                self.buffer.add(step)
            return {}

        return call

    extend = insert_single

    def vector_step(self, work: Workload) -> Callable[[], Tensors]:
        """A buffer an environment, and one add to all of them."""
        buffer = VectorReplayBuffer(self.data.num_steps, work.items)
        batch = self._batch(self.data.block(work.items))

        def call() -> Tensors:
            buffer.add(batch)
            return {}

        return call

    def _batch(self, columns: dict[str, Any]) -> Batch:
        done = columns.pop("done")
        named = {NAMES[name]: value for name, value in columns.items()}
        return Batch(**named, terminated=done, truncated=np.zeros_like(done), info={})


if __name__ == "__main__":
    serve(Tianshou())
