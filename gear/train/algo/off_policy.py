"""What algorithms share that act and learn from n-step transitions of replay."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic

import torch
from numpy.typing import NDArray
from torch import Tensor

import gear
from gear.train.algo.base import Algorithm
from gear.train.algo.captured import compiled
from gear.train.algo.policy_copy import N, PolicyCopy
from gear.train.config import ActingAlgo, Config
from gear.train.ranks import Ranks
from gear.train.strategies import Trained
from gear.train.tasks import nstep
from gear.train.tasks.environment import Environment


class OffPolicy(Algorithm, Generic[N]):
    """Acts with a copy of a network, and learns by updates that are captured where they can be.

    Attributes:
        policy: the copy of the network `actor`.
        updates: since the run's first step.
    """

    def __init__(self, config: Config, env: Environment, ranks: Ranks) -> None:
        super().__init__(config, env, ranks)
        assert isinstance(config.algo, ActingAlgo)
        self._plan = config.algo
        self.updates = 0
        self.stack = len(env.view)
        self.outputs = nstep.outputs(self._plan.n_step, self.stack)
        self._powers = nstep.powers_of(self._plan.gamma, self._plan.n_step, self.device)

    @abstractmethod
    def act(self, views: NDArray[Any], step: int) -> NDArray[Any]:
        """The actions [N, ...] to take at environment step `step` in N environments.

        views: what they show, [N, stack, *obs_shape].
        """

    @abstractmethod
    def update(self, t: nstep.Transitions, weights: Tensor) -> Tensor:
        """One update; the absolute TD error of each transition, float32 [B].

        weights: of the transitions' losses, float32 [B].
        Work on tensors alone, the same in each update: see Captured.
        """

    def learn(self, batch: gear.Batch) -> Tensor:
        errors = self._update(*nstep.read(batch), batch.weights)
        self.updates += 1
        self.policy.updated(self.updates)
        return errors

    def transitions(self, stored: nstep.Stored) -> nstep.Transitions:
        return nstep.transitions(stored, powers=self._powers, stack=self.stack)

    def observe(self, views: NDArray[Any]) -> Tensor:
        """Views [N, stack, *obs_shape] where the acting network takes them."""
        return torch.from_numpy(views).to(self.policy.device)

    def share(self) -> None:
        super().share()
        self.policy.refresh()

    def hand_over(self) -> None:
        super().hand_over()
        self.policy.refresh()

    def state_dict(self) -> dict[str, Any]:
        older = self.policy.network.state_dict() if self.policy.is_older else {}
        return {**super().state_dict(), "updates": self.updates, "acting": older}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.updates = state["updates"]
        if self.policy.is_older:
            self.policy.network.load_state_dict(state["acting"])
        else:
            self.policy.refresh()

    def _start(self, actor: N, trained: Trained) -> None:
        """At the end of a constructor: `actor` acts, `trained` is what `update` descends by."""
        self.policy: PolicyCopy[N] = PolicyCopy(actor, self._plan.policy_every)
        self._update, self.launching = compiled(
            self._update_from,
            wish=self._plan.compile,
            device=self.device,
            obstacle=trained.uncapturable(),
        )

    def _update_from(self, *given: Tensor) -> Tensor:
        *stored, weights = given
        return self.update(self.transitions(nstep.Stored(*stored)), weights)
