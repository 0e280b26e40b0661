"""cpprb: next_obs stored beside obs, its fastest layout for gathering; stacks stored whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from cpprb import PrioritizedReplayBuffer, ReplayBuffer
from protocol import Contestant, Tensors, serve
from workloads import Workload

ENV = {
    "obs": {"shape": 17},
    "next_obs": {"shape": 17},
    "action": {"shape": 6},
    "reward": {},
    "done": {"dtype": np.bool_},
}
STACK = {"shape": (4, 84, 84), "dtype": np.uint8}


class Cpprb(Contestant):
    name = "cpprb"
    packages = ("cpprb",)

    def fill(self) -> None:
        if self.data.is_frames:
            self.buffer = ReplayBuffer(self.data.num_steps, {"obs": STACK, "next_obs": STACK})
            for obs, next_obs in self.data.stacked_pairs():
                self.buffer.add(obs=obs, next_obs=next_obs)
        else:
            self.buffer = ReplayBuffer(self.data.num_steps, ENV)
            self.buffer.add(**self.data.transitions())

    def uniform(self, work: Workload) -> Callable[[], Tensors]:
        def call() -> Tensors:
            return {n: torch.from_numpy(a) for n, a in self.buffer.sample(work.items).items()}

        return call

    frames = uniform

    def weighted(self, work: Workload) -> Callable[[], Tensors]:
        buffer = self._prioritised()

        def call() -> Tensors:
            batch = buffer.sample(work.items, beta=0.4)
            return {name: torch.from_numpy(array) for name, array in batch.items()}

        return call

    def prioritised(self, work: Workload) -> Callable[[], Tensors]:
        buffer = self._prioritised()
        priorities = np.random.default_rng(4).random(work.items, np.float32) + 0.01

        def call() -> Tensors:
            batch = buffer.sample(work.items, beta=0.4)
            buffer.update_priorities(batch["indexes"], priorities)
            return {name: torch.from_numpy(array) for name, array in batch.items()}

        return call

    def _prioritised(self) -> PrioritizedReplayBuffer:
        buffer = PrioritizedReplayBuffer(self.data.num_steps, ENV, alpha=0.6)
        priorities = np.random.default_rng(2).random(self.data.num_steps, np.float32) + 0.01
        buffer.add(**self.data.transitions(), priorities=priorities)
        return buffer

    def insert_single(self, work: Workload) -> Callable[[], Tensors]:
        steps = self.data.single_steps(work.items)

        def call() -> Tensors:
            for step in steps:
                self.buffer.add(**step)
            return {}

        return call

    def vector_step(self, work: Workload) -> Callable[[], Tensors]:
        """One add of many rows, whether of many environments or of one."""
        batch = self.data.block(work.items)

        def call() -> Tensors:
            self.buffer.add(**batch)
            return {}

        return call

    extend = vector_step


if __name__ == "__main__":
    serve(Cpprb())
