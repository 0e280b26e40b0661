"""What algorithms share that learn from data by one loss of one model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

import gear
from gear.train.algo.base import Offline
from gear.train.config import Config, OfflineAlgo
from gear.train.models.decision_transformer import DecisionTransformer
from gear.train.models.networks import Reactive
from gear.train.models.pixels import PixelTransformer
from gear.train.ranks import Ranks
from gear.train.tasks.environment import Environment

N = TypeVar("N", bound=DecisionTransformer | PixelTransformer | Reactive)


def share_of_lr(update: int, *, warmup: int, total: int, final: float) -> float:
    """Of the learning rate at this update, from 0: a linear rise, then half a cosine to `final`."""
    if update < warmup:
        return (update + 1) / warmup
    passed = min(1.0, (update - warmup) / max(1, total - warmup))
    return final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * passed))


class OneLoss(Offline, Generic[N]):
    """Steps one model along the gradient of one loss, at a learning rate that rises and falls.

    make_network: also of the copy that plays where ranks share out the weights.
    """

    _plan: OfflineAlgo

    def __init__(
        self,
        config: Config,
        env: Environment | None,
        ranks: Ranks,
        make_network: Callable[[], N],
    ) -> None:
        super().__init__(config, env, ranks)
        assert isinstance(config.algo, OfflineAlgo)
        self._config, self._plan = config, config.algo
        self._updates = 0
        self._make_network = make_network
        self._model = make_network().to(self.device)
        self._playing: nn.Module = self._model
        self.launching = self.compile()
        self._trained = self.strategy.prepare(
            self._model, config.optim, undecayed=self._model.undecayed(), overlap=True
        )
        self.modules = {"model": self._model}
        self.trained = {"model": self._trained}

    def compile(self) -> str:
        """Compiles parts of the model before it is trained; returns what was chosen, and why."""
        return ""

    def descend(self, batch: gear.Batch, losses: Tensor, wrong: Tensor) -> Tensor:
        """One update along the mean of these losses, float32 [B], by the batch's weights.

        wrong: the second of `metric_names`, float32 []. Returns the losses.
        """
        a, total = self._plan, self._config.total_steps
        share = share_of_lr(self._updates, warmup=a.warmup, total=total, final=a.final_lr)
        self._trained.set_lr(self._config.optim.lr * share)
        loss = (batch.weights * losses).mean()
        self._trained.descend(loss, max_norm=a.max_grad_norm)
        self._updates += 1
        self.record(loss, wrong)
        return losses.detach()

    def ready_to_play(self) -> None:
        """Where ranks share out the weights, each gets a whole copy: they play apart."""
        if any(True for _ in self._trained.replicated()) and _is_float32(self._model):
            return
        state = self._trained.state_dict()["model"]  # on rank 0
        if self._playing is self._model:
            self._playing = self._make_network().to(self.device)
        if self._ranks.rank == 0:
            self._playing.load_state_dict(state)
        self._ranks.broadcast(self._playing.state_dict().values())

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "updates": self._updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._updates = state["updates"]


def _is_float32(module: nn.Module) -> bool:
    return all(p.dtype is torch.float32 for p in module.parameters())
