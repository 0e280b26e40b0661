"""Every rank holds the whole model; torch averages the gradients."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gear.train.config import Optim
from gear.train.ranks import Ranks
from gear.train.strategies.base import Strategy, Trained
from gear.train.strategies.named import Named
from gear.train.strategies.single import Replica

# Buffers are no result of training here, and need not be sent at every call.
_NAMES = signature(DistributedDataParallel).parameters
_SYNC = "forward_sync_buffers" if "forward_sync_buffers" in _NAMES else "broadcast_buffers"
_OPTIONS: dict[str, Any] = {_SYNC: False}


class Averaged(Replica):
    """One all-reduce of all gradients between backward and step.

    Exact for any number of networks and losses, and for networks that are called several times per
    backward pass and also without gradients. With NCCL it is on the current stream.
    """

    def __init__(
        self,
        module: nn.Module,
        optim: Optim,
        undecayed: Iterable[Tensor],
        ranks: Ranks,
    ) -> None:
        super().__init__(module, optim, undecayed)
        self._ranks = ranks

    def share(self) -> None:
        self._ranks.broadcast(self.module.state_dict().values())

    def uncapturable(self) -> str:
        if self._ranks.averaging == 1:
            return ""
        return f"{self._ranks.averaging} ranks average gradients in the middle of an update"

    def _backward(self, loss: Tensor) -> None:
        super()._backward(loss)
        self._ranks.average(self._gradients())

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self._parameters() if p.grad is not None]


class Taught(Averaged):
    """As Averaged, over the first `learners` ranks; the others give nothing to the mean."""

    def __init__(
        self,
        module: nn.Module,
        optim: Optim,
        undecayed: Iterable[Tensor],
        ranks: Ranks,
        learners: int,
    ) -> None:
        super().__init__(module, optim, undecayed, ranks)
        self._learners = learners

    def _backward(self, loss: Tensor) -> None:
        super()._backward(loss)
        torch._foreach_mul_(self._gradients(), self._ranks.times_of_first(self._learners))

    def stand_by(self) -> None:
        self._ranks.average([torch.zeros_like(p) for p in self._parameters()])


class Overlapped(Averaged):
    """DistributedDataParallel: gradients are averaged while others are still worked out."""

    def share(self) -> None:
        super().share()
        group = self._ranks.process_group
        if group is None:
            return
        with self._ranks.torch_collectives():
            model = DistributedDataParallel(
                self.module, process_group=group, gradient_as_bucket_view=True, **_OPTIONS
            )
        self.model = Named(model, self._ranks)

    def _backward(self, loss: Tensor) -> None:
        with self._ranks.torch_collectives():
            Replica._backward(self, loss)


class DdpStrategy(Strategy):
    """Data-parallel ranks by torch.distributed; one rank is what `single` is.

    learners: the first so many ranks call `descend`, the others `stand_by`.
    """

    def __init__(self, ranks: Ranks, learners: int) -> None:
        super().__init__(ranks)
        self._learners = learners

    def prepare(
        self,
        module: nn.Module,
        optim: Optim,
        *,
        undecayed: Iterable[Tensor] = (),
        overlap: bool = False,
    ) -> Trained:
        if self._learners < self.ranks.size:
            return Taught(module, optim, undecayed, self.ranks, self._learners)
        kind = Overlapped if overlap else Averaged
        return kind(module, optim, undecayed, self.ranks)
