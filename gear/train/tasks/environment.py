"""What a run plays: one environment whose episodes can be reproduced by number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from numpy.typing import NDArray

import gear
from gear.train.config import Env
from gear.train.tasks.seeding import episode_seed

Array = NDArray[Any]


class Environment(ABC):
    """Steps one environment and keeps what the networks see.

    view      the `stack` newest observations [stack, *obs_shape], uint8 or float32, zeros before
              the episode's first: what a window [1 - stack, 1) of the stored steps gives
    actions   continuous: float32 [action_dim] in [-1, 1], scaled here to the simulator's bounds;
              discrete: an integer in [0, num_actions); of several agents [num_agents, ...] of them

    Attributes:
        num_agents: that act together; 0: there is one, and no axis of agents.
    """

    num_agents = 0

    def __init__(
        self,
        config: Env,
        seed: int,
        simulator: Any,
        *,
        obs_shape: Sequence[int],
        dtype: str,
        actions: Space[Any],
    ) -> None:
        """actions: of an agent."""
        self._env = simulator
        self.id = config.id
        self._seed = seed
        self._reward_clip = config.reward_clip
        self.obs_shape, self.obs_dtype = tuple(obs_shape), dtype
        self.view: Array = np.zeros((config.stack, *obs_shape), dtype)
        self.num_actions, self.action_dim = 0, 0
        if isinstance(actions, Discrete):
            self.num_actions, self._first_action = int(actions.n), int(actions.start)
        elif isinstance(actions, Box) and actions.is_bounded():
            self.action_dim = int(np.prod(actions.shape))
            self._low, self._half = actions.low, (actions.high - actions.low) / 2
        else:
            raise gear.InvalidArgument(
                f"[train] {config.id} acts in {actions}: allowed are Discrete and a bounded Box"
            )

    @property
    def obs(self) -> Array:
        """The newest observation, `obs_shape`."""
        newest: Array = self.view[-1]
        return newest

    @property
    def columns(self) -> list[gear.Column]:
        """Of replay: what is observed, `action`, `reward` float32 and `terminated` bool (never a
        truncation)."""
        return [
            gear.Column("obs", self.obs_shape, self.obs_dtype),
            gear.Column("action", *self.action_kind),
            gear.Column("reward", (), "float32"),
            gear.Column("terminated", (), "bool"),
        ]

    def stored(self, obs: Array) -> Mapping[str, Array]:
        """Observations [..., *obs_shape] as replay stores them, by column."""
        return {"obs": obs}

    @property
    def action_kind(self) -> tuple[tuple[int, ...], str]:
        """Shape and dtype of an action."""
        return ((), "int64") if self.num_actions else ((self.action_dim,), "float32")

    @abstractmethod
    def random_action(self, chance: np.random.Generator) -> Array | int:
        """Any action that is possible is equally likely."""

    def reset(self, episode: int) -> None:
        """Start episode number `episode` of this run."""
        obs = self._reset(episode_seed(self._seed, episode))
        self.view = np.zeros_like(self.view)
        self.view[-1] = obs

    def step(self, action: Array | int) -> tuple[float, bool, bool]:
        """Returns (reward as the simulator gives it, terminated, truncated); of several agents the
        mean of their rewards."""
        obs, reward, terminated, truncated = self._step(action)
        # A fresh array: the writer and the caller may still hold the previous view.
        self.view = (
            np.roll(self.view, -1, axis=0) if len(self.view) > 1 else np.empty_like(self.view)
        )
        self.view[-1] = obs
        return reward, terminated, truncated

    def learning_reward(self, reward: float) -> Any:
        """`reward`, which the newest step gave, as replay stores it: clipped to [-reward_clip,
        reward_clip] if asked for; of several agents float32 [num_agents], of each its own."""
        clip = self._reward_clip
        return reward if clip is None else max(-clip, min(clip, reward))

    def replay(self, episode: int, actions: Array) -> None:
        """Bring back the state after `actions` [k, ...] of episode number `episode`.

        Stops early where the simulator, against its promise, ends the episode.
        """
        self.reset(episode)
        for action in actions:
            _, terminated, truncated = self.step(action)
            if terminated or truncated:
                break

    @property
    def interface(self) -> dict[str, Any]:
        """Of `models.exported`: how a network sees the simulator, and what it tells it."""
        stack = len(self.view)
        if self.num_actions:
            return {"stack": stack, "first": self._first_action}
        low, high = self._low, self._low + 2 * self._half
        if self.num_agents:
            low, high = (np.tile(np.ravel(each), (self.num_agents, 1)) for each in (low, high))
        return {"stack": stack, "low": low.tolist(), "high": high.tolist()}

    @property
    def draws(self) -> bool:
        """Whether the simulator can show frames, where what it draws with is installed."""
        return "rgb_array" in (self._env.metadata.get("render_modes") or ())

    def frame(self) -> Array:
        """The present, uint8 [height, width, 3]; made with `render_mode: rgb_array` in kwargs."""
        return np.asarray(self._env.render(), np.uint8)

    def close(self) -> None:
        self._env.close()

    @abstractmethod
    def _reset(self, seed: int) -> Array:
        """Starts an episode; the observation."""

    @abstractmethod
    def _step(self, action: Array | int) -> tuple[Array, float, bool, bool]:
        """The observation, and what `step` returns."""

    def _command(self, action: Array | int) -> Any:
        """What the simulator is told for one agent's action."""
        if self.num_actions:
            return self._first_action + int(action)
        return self._low + (np.reshape(action, self._low.shape) + 1) * self._half
