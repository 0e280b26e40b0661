"""Soft Actor-Critic (Haarnoja et al. 2018, arXiv:1812.05905)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gear.train.algo.base import Player
from gear.train.algo.off_policy import OffPolicy
from gear.train.config import Config, Dense, Sac
from gear.train.models.exported import Exported
from gear.train.models.networks import GaussianPolicy, TwinCritic
from gear.train.ranks import Ranks
from gear.train.tasks import nstep
from gear.train.tasks.environment import Environment


class Temperature(nn.Module):
    """The entropy coefficient alpha, learned through its logarithm."""

    def __init__(self) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.zeros(()))


class SAC(OffPolicy[GaussianPolicy]):
    """Twin critics with slowly following targets, squashed Gaussian policy, automatic temperature.

    With prioritised replay (arXiv:1511.05952) the importance weights scale the critics' loss and
    the mean absolute error of both critics is the priority. With n > 1 the entropy of the steps
    between anchor and bootstrap is left out of the return, as is usual.
    """

    metric_names = ("critic_loss", "policy_loss", "alpha", "q_mean", "entropy")

    def __init__(self, config: Config, env: Environment, ranks: Ranks) -> None:
        super().__init__(config, env, ranks)
        assert isinstance(config.algo, Sac)
        assert isinstance(config.model, Dense)
        obs_size, hidden = env.view.size, config.model.hidden
        self._action_dim = env.action_dim
        self._random_steps = config.algo.learning_starts
        self._tau = config.algo.tau
        target = config.algo.target_entropy
        self._target_entropy = -float(env.action_dim) if target is None else target
        self._shape = {"obs_size": obs_size, "action_dim": env.action_dim, "hidden": hidden}
        self._policy = GaussianPolicy(obs_size, env.action_dim, hidden).to(self.device)
        self._critic = TwinCritic(obs_size, env.action_dim, hidden).to(self.device)
        self._target = deepcopy(self._critic).requires_grad_(False)
        temperature = Temperature().to(self.device)
        self._log_alpha = temperature.log_alpha
        self._critic_values = [p.data for p in self._critic.parameters()]
        self._target_values = [p.data for p in self._target.parameters()]
        self.modules = {
            "policy": self._policy,
            "critic": self._critic,
            "target": self._target,
            "temperature": temperature,
        }
        # Weight decay of log_alpha would pull the temperature to 1.
        learned = nn.ModuleDict({k: v for k, v in self.modules.items() if k != "target"})
        self._learned = self.strategy.prepare(learned, config.optim, undecayed=[self._log_alpha])
        self.trained = {"all": self._learned}
        self._start(self._policy, self._learned)

    @torch.no_grad()
    def act(self, views: NDArray[Any], step: int) -> NDArray[Any]:
        if step < self._random_steps:
            return (torch.rand(len(views), self._action_dim) * 2 - 1).numpy()
        with self.policy.acting() as policy:
            actions: NDArray[Any] = policy.act(self.observe(views)).cpu().numpy()
        return actions

    def player(self) -> Player:
        return lambda view, reward: self._mean_action(view)

    @torch.no_grad()
    def _mean_action(self, view: NDArray[Any]) -> NDArray[Any]:
        with self.policy.acting() as policy:
            mean = policy.greedy(self.observe(view[np.newaxis]))
        action: NDArray[Any] = mean[0].cpu().numpy()
        return action

    def exported(self) -> Exported:
        with self.policy.acting() as playing:
            return Exported(playing, self._shape)

    def update(self, t: nstep.Transitions, weights: Tensor) -> Tensor:
        alpha = self._log_alpha.detach().exp()
        with torch.no_grad():
            next_action, next_log_density = self._policy(t.next_obs)
            next_value = self._target(t.next_obs, next_action).amin(0) - alpha * next_log_density
            target = t.returns + t.discount * next_value
        q = self._critic(t.obs, t.action)
        error = q - target
        critic_loss = 0.5 * (weights * error.square()).sum(0).mean()

        action, log_density = self._policy(t.obs)
        # The policy's gradient passes through the critics and must not reach their weights.
        value = self._critic(t.obs, action, frozen=True).amin(0)
        policy_loss = (alpha * log_density - value).mean()
        entropy = -log_density.detach().mean()
        alpha_loss = self._log_alpha * (entropy - self._target_entropy)

        # Three losses with disjoint parameters: one backward pass and one step serve them all.
        self._learned.descend(critic_loss + policy_loss + alpha_loss)
        torch._foreach_lerp_(self._target_values, self._critic_values, self._tau)
        self.record(critic_loss, policy_loss, alpha, q.mean(), entropy)
        priorities: Tensor = error.detach().abs().mean(0)
        return priorities
