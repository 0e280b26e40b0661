"""One Gymnasium environment whose episodes can be reproduced by number."""

from __future__ import annotations

import traceback
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import gear
from gear.train.config import Env
from gear.train.seeding import episode_seed

Array = NDArray[Any]


class Environment:
    """Steps one environment and keeps what the networks see.

    obs       the newest observation, `obs_shape`, uint8 or float32: what replay stores
    view      the `stack` newest observations [stack, *obs_shape], zeros before the episode's first:
              what a window [1 - stack, 1) of the stored steps gives
    actions   continuous: float32 [action_dim] in [-1, 1], scaled here to the simulator's bounds;
              discrete: an integer in [0, num_actions)
    """

    def __init__(self, config: Env, seed: int) -> None:
        self._env = _make(config)
        self._seed = seed
        self._reward_clip = config.reward_clip
        space = self._env.observation_space
        if not isinstance(space, gymnasium.spaces.Box):
            raise gear.InvalidArgument(
                f"[train] {config.id} observes {space}: allowed are arrays (Box); "
                "flatten it with a wrapper of your own"
            )
        self.obs_shape: tuple[int, ...] = space.shape
        self.obs_dtype = "uint8" if space.dtype == np.uint8 else "float32"
        self.view: Array = np.zeros((config.stack, *self.obs_shape), self.obs_dtype)
        actions = self._env.action_space
        self.num_actions, self.action_dim = 0, 0
        if isinstance(actions, gymnasium.spaces.Discrete):
            self.num_actions, self._first_action = int(actions.n), int(actions.start)
        elif isinstance(actions, gymnasium.spaces.Box) and actions.is_bounded():
            self.action_dim = int(np.prod(actions.shape))
            self._low, self._half = actions.low, (actions.high - actions.low) / 2
        else:
            raise gear.InvalidArgument(
                f"[train] {config.id} acts in {actions}: allowed are Discrete and a bounded Box"
            )

    @property
    def obs(self) -> Array:
        newest: Array = self.view[-1]
        return newest

    def reset(self, episode: int) -> None:
        """Start episode number `episode` of this run."""
        obs, _ = self._env.reset(seed=episode_seed(self._seed, episode))
        self.view = np.zeros_like(self.view)
        self.view[-1] = obs

    def step(self, action: Array | int) -> tuple[float, bool, bool]:
        """Returns (reward as the simulator gives it, terminated, truncated)."""
        if self.num_actions:
            command: Any = self._first_action + int(action)
        else:
            command = self._low + (np.reshape(action, self._low.shape) + 1) * self._half
        obs, reward, terminated, truncated, _ = self._env.step(command)
        # A fresh array: the writer and the caller may still hold the previous view.
        self.view = (
            np.roll(self.view, -1, axis=0) if len(self.view) > 1 else np.empty_like(self.view)
        )
        self.view[-1] = obs
        return float(reward), bool(terminated), bool(truncated)

    def learning_reward(self, reward: float) -> float:
        """The reward as replay stores it: clipped to [-reward_clip, reward_clip] if asked for."""
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

    def close(self) -> None:
        self._env.close()


def _make(config: Env) -> gymnasium.Env[Any, Any]:
    kwargs = dict(config.kwargs)
    try:
        if not config.frames:
            return gymnasium.make(config.id, disable_env_checker=True, **kwargs)
        import ale_py

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        gymnasium.register_envs(ale_py)
        env = gymnasium.make(config.id, frameskip=1, disable_env_checker=True, **kwargs)
        return gymnasium.wrappers.AtariPreprocessing(env)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        if isinstance(error, TypeError) and not _is_refusal(error):
            raise
        reason = " ".join(str(error).split())
        raise gear.InvalidArgument(
            f"[train] cannot make environment env.id={config.id}: {reason}"
        ) from error


def _is_refusal(error: TypeError) -> bool:
    """Gymnasium wraps what the call of an environment raises: it was called wrongly, and no line of
    the environment itself was run."""
    called = error.__context__ or error
    frames = [frame for frame, _ in traceback.walk_tb(called.__traceback__)]
    return bool(frames) and "gymnasium" in frames[-1].f_globals.get("__name__", "").split(".")
