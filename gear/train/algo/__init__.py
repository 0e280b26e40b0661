"""Learning algorithms; `make_algorithm` is the one place that knows their names."""

from __future__ import annotations

from collections.abc import Callable

import gear
from gear.train.algo.base import Algorithm, Offline
from gear.train.algo.bc import BehaviourCloning
from gear.train.algo.dqn import DoubleDQN
from gear.train.algo.dt import DecisionTransformerAlgorithm
from gear.train.algo.iql import IndependentLearners
from gear.train.algo.mat import MultiAgentTransformer
from gear.train.algo.off_policy import OffPolicy
from gear.train.algo.puzzles import PuzzleSolver
from gear.train.algo.sac import SAC
from gear.train.config import ActingAlgo, Config
from gear.train.ranks import Ranks
from gear.train.tasks.environment import Environment

__all__ = ["ALGORITHMS", "Algorithm", "OffPolicy", "Offline", "make_algorithm"]

ALGORITHMS: dict[str, Callable[[Config, Environment, Ranks], Algorithm]] = {
    "sac": SAC,
    "dqn": DoubleDQN,
    "mat": MultiAgentTransformer,
    "iql": IndependentLearners,
    "dt": DecisionTransformerAlgorithm,
    "bc": BehaviourCloning,
}


def make_algorithm(config: Config, env: Environment | None, ranks: Ranks) -> Algorithm:
    """The algorithm `config.algo.name` for this environment; InvalidArgument if they do not fit.

    env: None where nothing is played.
    """
    if env is None:
        return PuzzleSolver(config, ranks)
    discrete, name = env.num_actions > 0, config.algo.name
    if env.num_agents:
        fitting = ("mat", "iql") if discrete else ("mat",)
    else:
        fitting = ("dqn",) if discrete else ("sac",)
    acts = isinstance(config.algo, ActingAlgo)
    if name not in fitting and (acts or env.num_agents):
        team = f"{env.num_agents} agents with " if env.num_agents else ""
        actions = f"{env.num_actions} discrete actions" if discrete else "continuous actions"
        raise gear.InvalidArgument(
            f"[train] algo={name} does not fit {config.env.id}, which has {team}{actions}: use "
            + " or ".join(f"algo={each}" for each in fitting)
        )
    frames = len(env.obs_shape) == 2 and env.obs_dtype == "uint8"
    if config.model.name == "cnn" and not (frames and discrete):
        raise gear.InvalidArgument(
            f"[train] model={config.model.name} with algo={config.algo.name} does not fit "
            f"observations of shape {env.obs_shape}: use model=mlp; cnn is for frames and algo=dqn"
        )
    return ALGORITHMS[config.algo.name](config, env, ranks)
