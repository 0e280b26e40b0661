"""`make_environment`: the one place that knows the kinds of environments."""

from __future__ import annotations

from gear.train.config import Env
from gear.train.tasks.environment import Environment
from gear.train.tasks.single import Single
from gear.train.tasks.team import Team


def make_environment(config: Env, seed: int) -> Environment:
    """By `env.api`; InvalidArgument if it cannot be made, or is of a kind that nothing learns."""
    return {"gymnasium": Single, "pettingzoo": Team}[config.api](config, seed)
