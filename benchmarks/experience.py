"""The experience that every contestant stores: deterministic, every value traceable to its step.

Pure NumPy, because each contestant makes its own copy in its own interpreter from the same seed.
An episode of T steps has T+1 observations; the last one is the closing observation that only
next-observations reach. Observation t of episode e carries its key e*(T+1)+t, exactly, in
component 0 (float32) or in its first four pixels (uint8), so that any delivered row can be checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

OBS_DIM, ACTION_DIM, FRAME_SIDE, STACK = 17, 6, 84, 4


@dataclass(frozen=True)
class Experience:
    """E episodes of T steps. Transitions: every field; frames: only observations are read.

    observations: [E, T+1, 17] float32, or [E, T+1, 84, 84] uint8.
    action: [E, T, 6] float32; reward: [E, T] float32; done: [E, T] bool, true at t = T-1.
    """

    observations: NDArray[np.generic]
    action: NDArray[np.float32]
    reward: NDArray[np.float32]
    done: NDArray[np.bool_]

    @property
    def num_episodes(self) -> int:
        return self.action.shape[0]

    @property
    def episode_steps(self) -> int:
        return self.action.shape[1]

    @property
    def num_steps(self) -> int:
        return self.num_episodes * self.episode_steps

    @property
    def is_frames(self) -> bool:
        return self.observations.ndim == 4

    @property
    def step_bytes(self) -> int:
        """Bytes of one stored step: 97 for transitions, 7056 for frames (the frame alone)."""
        obs: int = self.observations[0, 0].nbytes
        return obs if self.is_frames else obs + ACTION_DIM * 4 + 4 + 1

    def episode(self, e: int) -> dict[str, NDArray[np.generic]]:
        """The steps of one episode, each column [T, ...]; views."""
        columns: dict[str, NDArray[np.generic]] = {"obs": self.observations[e, :-1]}
        if not self.is_frames:
            columns |= {"action": self.action[e], "reward": self.reward[e], "done": self.done[e]}
        return columns

    def transitions(self) -> dict[str, NDArray[np.generic]]:
        """obs, next_obs, action, reward, done as copies [E*T, ...]: what most libraries store."""
        rows = self.num_steps
        item = self.observations.shape[2:]
        return {
            "obs": self.observations[:, :-1].reshape(rows, *item),
            "next_obs": self.observations[:, 1:].reshape(rows, *item),
            "action": self.action.reshape(rows, ACTION_DIM).copy(),
            "reward": self.reward.reshape(rows).copy(),
            "done": self.done.reshape(rows).copy(),
        }

    def block(self, rows: int) -> dict[str, NDArray[np.generic]]:
        """The first transitions, each column [rows, ...], contiguous: a batch to insert."""
        return {name: column[:rows].copy() for name, column in self.transitions().items()}

    def single_steps(self, rows: int) -> list[dict[str, NDArray[np.generic]]]:
        """The same, one dict a transition: what an environment gives."""
        block = self.block(rows)
        return [{name: column[k] for name, column in block.items()} for k in range(rows)]

    def stacked_pairs(self) -> Iterator[tuple[NDArray[np.generic], NDArray[np.generic]]]:
        """Per episode: stacks of obs and of next_obs, each [T, 4, 84, 84]; zeros at the start."""
        steps = self.episode_steps
        for frames in self.observations:
            padded = np.concatenate([np.zeros_like(frames[: STACK - 1]), frames])
            stacks = np.stack([padded[k : k + steps + 1] for k in range(STACK)], axis=1)
            yield stacks[:-1], stacks[1:]


def make(dataset: str, *, quick: bool) -> Experience:
    """dataset: "transitions" (1e6 steps of 97 B) or "frames" (20,000 of 7056 B); quick: tiny."""
    rng = np.random.default_rng(17)
    if dataset == "frames":
        episodes, steps, shape = (2, 100, (84, 84)) if quick else (20, 1000, (84, 84))
        count = episodes * (steps + 1)
        frames = rng.integers(0, 256, (count, FRAME_SIDE * FRAME_SIDE), dtype=np.uint8)
        frames[:, :4] = np.arange(count, dtype="<u4")[:, None].view(np.uint8)
        observations: NDArray[np.generic] = frames.reshape(episodes, steps + 1, *shape)
    else:
        episodes, steps = (10, 200) if quick else (1000, 1000)
        count = episodes * (steps + 1)
        vectors = rng.standard_normal((count, OBS_DIM), dtype=np.float32)
        vectors[:, 0] = np.arange(count)
        observations = vectors.reshape(episodes, steps + 1, OBS_DIM)
    done = np.zeros((episodes, steps), np.bool_)
    done[:, -1] = True
    return Experience(
        observations,
        rng.standard_normal((episodes, steps, ACTION_DIM), dtype=np.float32),
        rng.standard_normal((episodes, steps), dtype=np.float32),
        done,
    )


def keys(observations: NDArray[np.generic]) -> NDArray[np.int64]:
    """The keys of delivered observations [..., 17] or [..., 84, 84]: int64 [...]."""
    if observations.dtype == np.uint8:
        pixels = np.ascontiguousarray(observations[..., 0, :4])
        return pixels.view("<u4")[..., 0].astype(np.int64)
    return observations[..., 0].astype(np.int64)
