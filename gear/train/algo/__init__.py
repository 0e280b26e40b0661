"""Learning algorithms; `make_algorithm` is the one place that knows their names."""

from __future__ import annotations

import gear
from gear.train.algo.base import Algorithm
from gear.train.algo.dqn import DoubleDQN
from gear.train.algo.sac import SAC
from gear.train.config import Config
from gear.train.envs import Environment
from gear.train.ranks import Ranks

__all__ = ["ALGORITHMS", "Algorithm", "make_algorithm"]

ALGORITHMS: dict[str, type[Algorithm]] = {"sac": SAC, "dqn": DoubleDQN}


def make_algorithm(config: Config, env: Environment, ranks: Ranks) -> Algorithm:
    """The algorithm `config.algo.name` for this environment; InvalidArgument if they do not fit."""
    discrete = env.num_actions > 0
    fitting = "dqn" if discrete else "sac"
    if config.algo.name != fitting:
        actions = f"{env.num_actions} discrete actions" if discrete else "continuous actions"
        raise gear.InvalidArgument(
            f"[train] algo={config.algo.name} does not fit {config.env.id}, which has {actions}: "
            f"use algo={fitting}"
        )
    frames = len(env.obs_shape) == 2 and env.obs_dtype == "uint8"
    if config.model.name == "cnn" and not (frames and discrete):
        raise gear.InvalidArgument(
            f"[train] model={config.model.name} with algo={config.algo.name} does not fit "
            f"observations of shape {env.obs_shape}: use model=mlp; cnn is for frames and algo=dqn"
        )
    return ALGORITHMS[fitting](config, env, ranks)
