"""Independent learners (Tan 1993, doi:10.1016/B978-1-55860-307-3.50049-6): what a team is measured
against."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gear.train.algo.team import TeamLearner
from gear.train.config import Config, Dense, Iql
from gear.train.models.team import IndependentQ
from gear.train.ranks import Ranks
from gear.train.tasks import nstep
from gear.train.tasks.environment import Environment


class IndependentLearners(TeamLearner[IndependentQ]):
    """Double DQN (arXiv:1509.06461) of each agent by itself: from what it observes, does and earns.

    The others are part of its world. Huber loss, mean over the agents; with prioritised replay the
    importance weights scale it and the mean absolute error is the priority.
    """

    def __init__(self, config: Config, env: Environment, ranks: Ranks) -> None:
        assert isinstance(config.algo, Iql)
        assert isinstance(config.model, Dense)
        shape: dict[str, Any] = {
            "num_agents": env.num_agents,
            "obs_size": len(env.view) * env.obs_shape[-1],
            "num_actions": env.num_actions,
            "hidden": config.model.hidden,
        }
        super().__init__(config, env, ranks, IndependentQ(**shape), shape)

    def chosen(self, network: IndependentQ, obs: Tensor, epsilon: float) -> Tensor:
        values = network(obs).cpu()
        explores = torch.rand(values.shape[:2]) < epsilon
        chance = torch.rand(values.shape).masked_fill(~network.available(obs).cpu(), -1.0)
        return torch.where(explores, chance.argmax(2), values.argmax(2))

    def update(self, t: nstep.Transitions, weights: Tensor) -> Tensor:
        with torch.no_grad():
            best = self._online(t.next_obs).argmax(2, keepdim=True)
            value = self._target(t.next_obs).gather(2, best).squeeze(2)
            target = t.returns + t.discount[:, None] * value
        q = self._online(t.obs).gather(2, t.action[:, :, None]).squeeze(2)
        loss = (weights * F.huber_loss(q, target, reduction="none").mean(1)).mean()
        self._learned.descend(loss, max_norm=self._algo.max_grad_norm)
        self.record(loss, q.mean())
        errors: Tensor = (q - target).detach().abs().mean(1)
        return errors
