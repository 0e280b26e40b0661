"""The multi-agent transformer (Wen et al. 2022, arXiv:2205.14953), learned from replay.

The paper trains it by PPO, which needs the actions of the present policy. Here the decoder learns
values, by the autoregressive Q-learning of Chebotar et al. 2023 (arXiv:2309.10150, with the agents'
choices in place of an action's dimensions), for which it does not matter who acted.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gear.train.algo.team import TeamLearner
from gear.train.config import Agents, Config, Mat
from gear.train.models.team import AgentTransformer
from gear.train.ranks import Ranks
from gear.train.tasks import nstep
from gear.train.tasks.environment import Environment


class MultiAgentTransformer(TeamLearner[AgentTransformer]):
    """Each choice is as good as the best one that can follow it; the last one earns the reward.

    A choice's target is the target network's greatest value at the next place, after the choices
    that were made; the last one's is the return of the team (the mean over its agents) plus the
    discounted greatest value of the first choice at the next step. Huber loss, mean over the
    choices; with prioritised replay the importance weights scale it and the mean absolute error is
    the priority.
    """

    def __init__(self, config: Config, env: Environment, ranks: Ranks) -> None:
        assert isinstance(config.algo, Mat)
        model = config.model
        assert isinstance(model, Agents)
        shape: dict[str, Any] = {
            "num_agents": env.num_agents,
            "obs_size": len(env.view) * env.obs_shape[-1],
            "num_actions": env.num_actions,
            "action_dim": env.action_dim,
            "bins": config.algo.bins,
            "width": model.width,
            "layers": model.layers,
            "heads": model.heads,
        }
        super().__init__(config, env, ranks, AgentTransformer(**shape), shape)

    def chosen(self, network: AgentTransformer, obs: Tensor, epsilon: float) -> Tensor:
        explores = torch.rand(len(obs), network.num_choices) < epsilon
        chance = torch.rand(len(obs), network.num_choices, network.num_actions or network.bins)
        choices = network.choose(obs, explores.to(obs.device), chance.to(obs.device))
        return network.actions(choices)

    def update(self, t: nstep.Transitions, weights: Tensor) -> Tensor:
        choices = self._online.choices(t.action)
        with torch.no_grad():
            both = self._target(torch.cat([t.obs, t.next_obs]), choices.repeat(2, 1)).amax(2)
            behind, value = both[: len(choices), 1:], both[len(choices) :, 0]
            last = t.returns.mean(1) + t.discount * value
            target = torch.cat([behind, last[:, None]], 1)
        q = self._online(t.obs, choices).gather(2, choices[:, :, None]).squeeze(2)
        losses = F.huber_loss(q, target, reduction="none").mean(1)
        loss = (weights * losses).mean()
        self._learned.descend(loss, max_norm=self._algo.max_grad_norm)
        self.record(loss, q.mean())
        errors: Tensor = (q - target).detach().abs().mean(1)
        return errors
