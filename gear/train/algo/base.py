"""What the learner loop asks of an algorithm."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import gear
from gear.train import nstep
from gear.train.config import Config
from gear.train.envs import Environment
from gear.train.ranks import Ranks

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


class Algorithm(ABC):
    """Chooses actions and learns from batches.

    Randomness comes from torch's global generator only. Subclasses put networks and optimisers into
    `modules` and `optimizers`: these are the state. With several ranks every rank holds the same
    state and learns from its own batch: subclasses step an optimiser through `descend` only.
    """

    metric_names: ClassVar[tuple[str, ...]]

    def __init__(self, config: Config, env: Environment, ranks: Ranks) -> None:
        gamma, n_step = config.algo.gamma, config.algo.n_step
        self.stack = len(env.view)
        self.outputs = nstep.outputs(n_step, self.stack)
        self.device = torch.device(ranks.device)
        self._powers = nstep.powers_of(gamma, n_step, self.device)
        self._ranks = ranks
        self.modules: dict[str, nn.Module] = {}
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        self._optim = config.optim
        self._sums = torch.zeros(len(self.metric_names), device=self.device)
        self._count = 0

    @abstractmethod
    def act(self, view: NDArray[Any], step: int) -> NDArray[Any] | int:
        """The action to take at environment step `step`, seeing `view` [stack, *obs_shape]."""

    @abstractmethod
    def learn(self, batch: gear.Batch) -> Tensor:
        """One update; returns the absolute TD error of each transition, float32 [B]."""

    def transitions(self, batch: gear.Batch) -> nstep.Transitions:
        return nstep.transitions(batch, powers=self._powers, stack=self.stack)

    def make_optimizer(
        self, weights: Iterable[Tensor], undecayed: Iterable[Tensor] = ()
    ) -> torch.optim.Optimizer:
        """The optimiser of the group `optim`, in its fused form (one kernel for all parameters).

        undecayed: parameters that `weight_decay` must not pull to zero.
        """
        o = self._optim
        groups: list[dict[str, Any]] = [{"params": list(weights)}]
        if alone := list(undecayed):
            groups.append({"params": alone, "weight_decay": 0.0})
        optimizer: torch.optim.Optimizer = OPTIMIZERS[o.name](
            groups, lr=o.lr, betas=o.betas, eps=o.eps, weight_decay=o.weight_decay, fused=True
        )
        return optimizer

    def descend(
        self, optimizer: torch.optim.Optimizer, loss: Tensor, *, max_norm: float | None = None
    ) -> None:
        """One step along the gradient of the mean of `loss` over the ranks; collective.

        `loss` is a mean over the rank's batch; every parameter of `optimizer` takes part in it.
        max_norm: the gradient is shortened to it, after averaging: as one rank would.
        """
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._ranks.average([p.grad for p in parameters])
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        optimizer.step()

    def share(self) -> None:
        """Gives every rank the networks of rank 0; collective."""
        for module in self.modules.values():
            self._ranks.broadcast(module.state_dict().values())

    def digest(self) -> str:
        """Of all networks' bytes: equal on all ranks, or they have come apart."""
        found = hashlib.sha256()
        for module in self.modules.values():
            for tensor in module.state_dict().values():
                found.update(tensor.detach().cpu().numpy().tobytes())
        return found.hexdigest()

    def observe(self, view: NDArray[Any]) -> Tensor:
        """A batch of one observation on the device."""
        return torch.from_numpy(view[np.newaxis]).to(self.device)

    def record(self, *values: Tensor) -> None:
        """Add one update's metrics, in the order of `metric_names`; costs no synchronisation."""
        self._sums += torch.stack([value.detach() for value in values])
        self._count += 1

    def metrics(self) -> dict[str, float]:
        """Means since the previous call; empty when nothing was learned since."""
        if self._count == 0:
            return {}
        means = (self._sums / self._count).tolist()
        self._sums.zero_()
        self._count = 0
        return dict(zip(self.metric_names, means, strict=True))

    def state_dict(self) -> dict[str, Any]:
        return {
            "modules": {name: module.state_dict() for name, module in self.modules.items()},
            "optimizers": {name: o.state_dict() for name, o in self.optimizers.items()},
            "sums": self._sums,
            "count": self._count,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, module in self.modules.items():
            module.load_state_dict(state["modules"][name])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        self._sums.copy_(state["sums"])
        self._count = state["count"]
