"""Double DQN (van Hasselt et al. 2015, arXiv:1509.06461)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

import gear
from gear.train.algo.base import Player
from gear.train.algo.off_policy import OffPolicy
from gear.train.config import Config, Dense, Dqn
from gear.train.models.exported import Exported
from gear.train.models.networks import QNetwork
from gear.train.ranks import Ranks
from gear.train.tasks import nstep
from gear.train.tasks.environment import Environment


class DoubleDQN(OffPolicy[QNetwork]):
    """The online network chooses the bootstrap action, a frozen copy values it.

    Epsilon-greedy with a linear fall; Huber loss; with prioritised replay (arXiv:1511.05952) the
    importance weights scale the loss and the absolute error is the priority.
    """

    metric_names = ("loss", "q_mean")

    def __init__(self, config: Config, env: Environment, ranks: Ranks) -> None:
        super().__init__(config, env, ranks)
        assert isinstance(config.algo, Dqn)
        assert isinstance(config.model, Dense)
        self._algo = config.algo
        self._num_actions = env.num_actions
        frames = config.model.name == "cnn"
        self._shape: dict[str, Any] = {
            "obs_shape": env.view.shape,
            "num_actions": env.num_actions,
            "hidden": config.model.hidden,
            "frames": frames,
        }
        self._online = QNetwork(**self._shape).to(self.device)
        self._target = deepcopy(self._online).requires_grad_(False)
        self._online_values = [p.detach() for p in self._online.parameters()]
        self._target_values = [p.detach() for p in self._target.parameters()]
        self.modules = {"online": self._online, "target": self._target}
        self._learned = self.strategy.prepare(self._online, config.optim)
        self.trained = {"online": self._learned}
        self._start(self._online, self._learned)

    @torch.no_grad()
    def act(self, views: NDArray[Any], step: int) -> NDArray[Any]:
        explores = torch.rand(len(views)) < epsilon_at(self._algo, step)
        actions = torch.randint(self._num_actions, (len(views),))
        if not explores.all():
            actions = torch.where(explores, actions, self._best_actions(views))
        return actions.numpy()

    def player(self) -> Player:
        return lambda view, reward: int(self._best_actions(view[np.newaxis]).item())

    @torch.no_grad()
    def _best_actions(self, views: NDArray[Any]) -> Tensor:
        with self.policy.acting() as online:
            best = online.greedy(self.observe(views)).cpu()
        return best

    def exported(self) -> Exported:
        with self.policy.acting() as playing:
            return Exported(playing, self._shape)

    def learn(self, batch: gear.Batch) -> Tensor:
        errors = super().learn(batch)
        if self.updates % self._algo.target_every == 0:
            torch._foreach_copy_(self._target_values, self._online_values)
        return errors

    def update(self, t: nstep.Transitions, weights: Tensor) -> Tensor:
        with torch.no_grad():
            best = self._online(t.next_obs).argmax(1, keepdim=True)
            value = self._target(t.next_obs).gather(1, best).squeeze(1)
            target = t.returns + t.discount * value
        q = self._online(t.obs).gather(1, t.action[:, None]).squeeze(1)
        loss = (weights * F.huber_loss(q, target, reduction="none")).mean()
        self._learned.descend(loss, max_norm=self._algo.max_grad_norm)
        self.record(loss, q.mean())
        priorities: Tensor = (q - target).detach().abs()
        return priorities


def epsilon_at(algo: Dqn, step: int) -> float:
    """Share of random actions at environment step `step`; 1 until learning starts."""
    passed = (step - algo.learning_starts) / max(1, algo.epsilon_steps)
    fall = algo.epsilon_final - algo.epsilon_start
    return algo.epsilon_start + fall * min(1.0, passed) if passed >= 0 else 1.0
