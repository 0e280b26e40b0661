"""Learning algorithms; `make_algorithm` is the one place that knows their names."""

from __future__ import annotations

from typing import Any

import gear
from gear.train.algo.base import Algorithm
from gear.train.algo.dqn import DoubleDQN
from gear.train.algo.sac import SAC
from gear.train.envs import Environment
from gear.train.ranks import Ranks

__all__ = ["ALGORITHMS", "Algorithm", "make_algorithm"]

ALGORITHMS: dict[str, type[Algorithm]] = {"sac": SAC, "dqn": DoubleDQN}


def make_algorithm(cfg: Any, env: Environment, ranks: Ranks) -> Algorithm:
    """The algorithm `cfg.algo.name` for this environment; InvalidArgument if they do not fit."""
    discrete = env.num_actions > 0
    fitting = "dqn" if discrete else "sac"
    if cfg.algo.name != fitting:
        actions = f"{env.num_actions} discrete actions" if discrete else "continuous actions"
        raise gear.InvalidArgument(
            f"[train] algo={cfg.algo.name} does not fit {cfg.env.id}, which has {actions}: "
            f"use algo={fitting}"
        )
    frames = len(env.obs_shape) == 2 and env.obs_dtype == "uint8"
    if cfg.model.name == "cnn" and not (frames and discrete):
        raise gear.InvalidArgument(
            f"[train] model={cfg.model.name} with algo={cfg.algo.name} does not fit observations "
            f"of shape {env.obs_shape}: use model=mlp; cnn is for frames and algo=dqn"
        )
    return ALGORITHMS[fitting](cfg, env, ranks)
