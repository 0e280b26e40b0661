"""Double DQN (van Hasselt et al. 2015, arXiv:1509.06461)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

import gear
from gear.train.algo.base import Algorithm
from gear.train.config import Config, Dqn
from gear.train.envs import Environment
from gear.train.nets import QNetwork
from gear.train.ranks import Ranks


class DoubleDQN(Algorithm):
    """The online network chooses the bootstrap action, a frozen copy values it.

    Epsilon-greedy with a linear fall; Huber loss; with prioritised replay (arXiv:1511.05952) the
    importance weights scale the loss and the absolute error is the priority.
    """

    metric_names = ("loss", "q_mean")

    def __init__(self, config: Config, env: Environment, ranks: Ranks) -> None:
        super().__init__(config, env, ranks)
        assert isinstance(config.algo, Dqn)
        self._algo = config.algo
        self._num_actions = env.num_actions
        self._updates = 0
        frames = config.model.name == "cnn"
        network = QNetwork(env.view.shape, env.num_actions, config.model.hidden, frames=frames)
        self._online = network.to(self.device)
        self._target = deepcopy(self._online).requires_grad_(False)
        self.modules = {"online": self._online, "target": self._target}
        self.optimizers = {"online": self.make_optimizer(self._online.parameters())}

    def epsilon(self, step: int) -> float:
        """Share of random actions at environment step `step`; 1 until learning starts."""
        a = self._algo
        passed = (step - a.learning_starts) / max(1, a.epsilon_steps)
        fall = a.epsilon_final - a.epsilon_start
        return a.epsilon_start + fall * min(1.0, passed) if passed >= 0 else 1.0

    @torch.no_grad()
    def act(self, view: NDArray[Any], step: int) -> int:
        if torch.rand(()).item() < self.epsilon(step):
            return int(torch.randint(self._num_actions, ()).item())
        return int(self._online(self.observe(view)).argmax(1).item())

    def learn(self, batch: gear.Batch) -> Tensor:
        t = self.transitions(batch)
        with torch.no_grad():
            best = self._online(t.next_obs).argmax(1, keepdim=True)
            value = self._target(t.next_obs).gather(1, best).squeeze(1)
            target = t.returns + t.discount * value
        q = self._online(t.obs).gather(1, t.action[:, None]).squeeze(1)
        loss = (batch.weights * F.huber_loss(q, target, reduction="none")).mean()
        self.descend(self.optimizers["online"], loss, max_norm=self._algo.max_grad_norm)
        self._updates += 1
        if self._updates % self._algo.target_every == 0:
            self._target.load_state_dict(self._online.state_dict())
        self.record(loss, q.mean())
        priorities: Tensor = (q - target).detach().abs()
        return priorities

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "updates": self._updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._updates = state["updates"]
