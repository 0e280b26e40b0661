"""Environments of one agent: Gymnasium's."""

from __future__ import annotations

import traceback
from typing import Any

import gymnasium
import numpy as np

import gear
from gear.train.config import Env
from gear.train.tasks.environment import Array, Environment


class Single(Environment):
    """Gymnasium's environment `env.id`, made with `env.kwargs`."""

    def __init__(self, config: Env, seed: int) -> None:
        simulator = _make(config)
        space = simulator.observation_space
        if not isinstance(space, gymnasium.spaces.Box):
            raise gear.InvalidArgument(
                f"[train] {config.id} observes {space}: allowed are arrays (Box); "
                "flatten it with a wrapper of your own"
            )
        dtype = "uint8" if space.dtype == np.uint8 else "float32"
        super().__init__(
            *(config, seed, simulator),
            obs_shape=space.shape,
            dtype=dtype,
            actions=simulator.action_space,
        )

    def random_action(self, chance: np.random.Generator) -> Array | int:
        if self.num_actions:
            return int(chance.integers(self.num_actions))
        return chance.uniform(-1, 1, self.action_dim).astype(np.float32)

    def _reset(self, seed: int) -> Array:
        obs: Array = self._env.reset(seed=seed)[0]
        return obs

    def _step(self, action: Array | int) -> tuple[Array, float, bool, bool]:
        obs, reward, terminated, truncated, _ = self._env.step(self._command(action))
        return obs, float(reward), bool(terminated), bool(truncated)


def register_atari() -> None:
    """Puts the Atari games into Gymnasium's registry; ImportError without ale_py."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)


def _make(config: Env) -> gymnasium.Env[Any, Any]:
    kwargs = dict(config.kwargs)
    try:
        if not config.frames:
            return gymnasium.make(config.id, disable_env_checker=True, **kwargs)
        register_atari()
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
