"""What algorithms share that act for a team and learn the values of its actions."""

from __future__ import annotations

from abc import abstractmethod
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import gear
from gear.train.algo.base import Player
from gear.train.algo.dqn import epsilon_at
from gear.train.algo.off_policy import OffPolicy
from gear.train.algo.policy_copy import N
from gear.train.config import Config, Dqn
from gear.train.models.exported import Exported
from gear.train.ranks import Ranks
from gear.train.tasks import nstep
from gear.train.tasks.environment import Environment


class TeamLearner(OffPolicy[N]):
    """Learns by Q-learning from replay, with a target network that is copied every so often.

    Q-learning, since replay holds what older policies did: a target of Q-learning is right whoever
    acted, where a policy gradient wants actions of the present policy.
    """

    metric_names = ("loss", "q_mean")

    def __init__(
        self, config: Config, env: Environment, ranks: Ranks, network: N, shape: dict[str, Any]
    ) -> None:
        """network: made with the arguments `shape`; has `greedy`."""
        super().__init__(config, env, ranks)
        assert isinstance(config.algo, Dqn)
        self._algo = config.algo
        self.outputs = nstep.outputs(config.algo.n_step, self.stack)
        if env.num_actions:
            self.outputs["available"] = self.outputs["obs"]
        self._shape = shape
        self._online = network.to(self.device)
        self._target = deepcopy(self._online).requires_grad_(False)
        self._online_values = [p.detach() for p in self._online.parameters()]
        self._target_values = [p.detach() for p in self._target.parameters()]
        self.modules = {"online": self._online, "target": self._target}
        of = getattr(self._online, "undecayed", tuple)
        self._learned = self.strategy.prepare(self._online, config.optim, undecayed=of())
        self.trained = {"online": self._learned}
        self._start(self._online, self._learned)

    @abstractmethod
    def chosen(self, network: N, obs: Tensor, epsilon: float) -> Tensor:
        """Actions of which a share `epsilon` is random, on the CPU."""

    def act(self, views: NDArray[Any], step: int) -> NDArray[Any]:
        with torch.no_grad(), self.policy.acting() as network:
            actions = self.chosen(network, self.observe(views), epsilon_at(self._algo, step))
        found: NDArray[Any] = actions.cpu().numpy()
        return found

    def player(self) -> Player:
        def play(view: NDArray[Any], reward: float) -> NDArray[Any]:
            with torch.no_grad(), self.policy.acting() as network:
                best: Tensor = network.greedy(self.observe(view[np.newaxis]))  # type: ignore[operator]
            action: NDArray[Any] = best[0].cpu().numpy()
            return action

        return play

    def exported(self) -> Exported:
        with self.policy.acting() as playing:
            return Exported(playing, self._shape)

    def learn(self, batch: gear.Batch) -> Tensor:
        errors = super().learn(batch)
        if self.updates % self._algo.target_every == 0:
            torch._foreach_copy_(self._target_values, self._online_values)
        return errors
