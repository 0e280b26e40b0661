"""stable-baselines3: ReplayBuffer as its off-policy algorithms use it. It has no priorities."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from gymnasium import spaces
from protocol import Contestant, Tensors, serve
from stable_baselines3.common.buffers import ReplayBuffer
from workloads import Workload

NAMES = ("obs", "next_obs", "action", "reward", "done")  # the order of add()
ACTION = spaces.Box(-1, 1, (6,))


class Sb3(Contestant):
    name = "stable-baselines3"
    packages = ("stable-baselines3",)

    def fill(self) -> None:
        self.buffer = self._make(num_envs=1)
        if self.data.is_frames:
            steps = self.data.episode_steps
            for e, (obs, next_obs) in enumerate(self.data.stacked_pairs()):
                self.buffer.observations[e * steps : (e + 1) * steps, 0] = obs
                self.buffer.next_observations[e * steps : (e + 1) * steps, 0] = next_obs

    def _make(self, num_envs: int, *, timeouts: bool = False) -> ReplayBuffer:
        """A full buffer over num_envs environments (the last incomplete row of them left out).

        `timeouts`: as it is by default, where it tells truncated episodes from terminated ones.
        """
        obs = spaces.Box(-np.inf, np.inf, (17,))
        if self.data.is_frames:
            obs = spaces.Box(0, 255, (4, 84, 84), np.uint8)  # type: ignore[arg-type]
        buffer = ReplayBuffer(
            self.data.num_steps, obs, ACTION, "cpu", num_envs, handle_timeout_termination=timeouts
        )
        if not self.data.is_frames:
            rows = buffer.buffer_size
            stored = self.data.transitions()
            for name, array in (
                ("obs", buffer.observations),
                ("next_obs", buffer.next_observations),
                ("action", buffer.actions),
                ("reward", buffer.rewards),
                ("done", buffer.dones),
            ):
                array[:] = stored[name][: rows * num_envs].reshape(array.shape)
        buffer.full = True
        return buffer

    def uniform(self, work: Workload) -> Callable[[], Tensors]:
        def call() -> Tensors:
            batch = self.buffer.sample(work.items)
            return {
                "obs": batch.observations,
                "next_obs": batch.next_observations,
                "action": batch.actions,
                "reward": batch.rewards,
                "done": batch.dones,
            }

        return call

    frames = uniform

    def insert_single(self, work: Workload) -> Callable[[], Tensors]:
        """It adds one step of each environment at a time; so in extend."""
        self.variant = f"{work.items} calls of add"
        block = self.data.block(work.items)
        steps = [(*(block[n][k : k + 1] for n in NAMES), [{}]) for k in range(work.items)]

        def call() -> Tensors:
            add = self.buffer.add
            for step in steps:
                add(*step)
            return {}

        return call

    extend = insert_single

    def vector_step(self, work: Workload) -> Callable[[], Tensors]:
        """With its bookkeeping of ends, as its vector environments give them in every info."""
        buffer = self._make(num_envs=work.items, timeouts=True)
        block = self.data.block(work.items)
        batch = [block[name] for name in NAMES]
        infos = [{"TimeLimit.truncated": bool(done)} for done in block["done"]]

        def call() -> Tensors:
            buffer.add(*batch, infos)
            return {}

        return call


if __name__ == "__main__":
    serve(Sb3())
