"""One process; and what every strategy has that keeps the whole model on each rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from gear.train.config import Optim
from gear.train.strategies.base import Strategy, Trained, make_optimizer, on_host, parameters_of


class Replica(Trained):
    """A model that this rank holds whole. With one rank there is nothing to share or to reduce."""

    def __init__(self, module: nn.Module, optim: Optim, undecayed: Iterable[Tensor]) -> None:
        self.model = self.module = module
        self.lr = optim.lr
        self.optimizer = make_optimizer(parameters_of(module, undecayed), optim)

    def share(self) -> None:
        pass

    def descend(self, loss: Tensor, *, max_norm: float | None = None) -> None:
        self.optimizer.zero_grad()
        self._backward(loss)
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._parameters(), max_norm)
        if loss.is_cuda and torch.cuda.is_current_stream_capturing():
            for group in self.optimizer.param_groups:
                group["capturable"] = True  # as the fused form is; torch wants it said
        self._step()

    def state_dict(self) -> dict[str, Any]:
        states = self.optimizer.state
        return {
            "model": {name: on_host(value) for name, value in self.module.state_dict().items()},
            "optimizer": {
                name: {key: on_host(value) for key, value in states[p].items()}
                for name, p in self.module.named_parameters()
                if p in states
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.module.load_state_dict(state["model"])
        saved = {id(p): state["optimizer"].get(n) for n, p in self.module.named_parameters()}
        numbered = dict(enumerate(saved[id(p)] for p in self._parameters()))
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict(
            # Copies: torch would go on with the very tensors.
            {"state": {n: deepcopy(s) for n, s in numbered.items() if s}, "param_groups": groups}
        )

    def replicated(self) -> Iterable[Tensor]:
        return self.module.state_dict().values()

    def _backward(self, loss: Tensor) -> None:
        """Leaves the gradient of the mean over the ranks."""
        loss.backward()  # type: ignore[no-untyped-call]

    def _step(self) -> None:
        self.optimizer.step()

    def _parameters(self) -> list[Tensor]:
        """In the optimiser's order."""
        return [p for group in self.optimizer.param_groups for p in group["params"]]


class Alone(Replica):
    """The only rank: its step is work of its GPU alone."""

    def uncapturable(self) -> str:
        return ""


class SingleStrategy(Strategy):
    """One process trains by itself."""

    def prepare(
        self,
        module: nn.Module,
        optim: Optim,
        *,
        undecayed: Iterable[Tensor] = (),
        overlap: bool = False,
    ) -> Trained:
        return Alone(module, optim, undecayed)
