"""Every rank holds the whole model; Horovod averages the gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from gear.train.config import Horovod, Optim
from gear.train.ranks import Ranks
from gear.train.ranks.horovod import HorovodRanks
from gear.train.strategies.base import Strategy, Trained
from gear.train.strategies.ddp import Averaged
from gear.train.strategies.single import Replica


class Overlapped(Replica):
    """Horovod's DistributedOptimizer: gradients are averaged while others are still worked out.

    Its `broadcast_optimizer_state` is not called: an optimiser that has not stepped is the same on
    all ranks, and Horovod would step it to learn what it keeps. Later ones load one state.
    """

    def __init__(
        self,
        module: nn.Module,
        optim: Optim,
        undecayed: Iterable[Tensor],
        ranks: HorovodRanks,
        dist: Horovod,
    ) -> None:
        super().__init__(module, optim, undecayed)
        self._ranks = ranks
        self._compression = dist.compression

    def share(self) -> None:
        import horovod.torch as hvd

        self._ranks.broadcast(self.module.state_dict().values())
        with self._ranks.torch_collectives():
            trained = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
            self.optimizer = hvd.DistributedOptimizer(
                self.optimizer,
                named_parameters=trained,
                compression=getattr(hvd.Compression, self._compression),
            )

    def uncapturable(self) -> str:
        return "Horovod averages gradients in the middle of an update"

    def _backward(self, loss: Tensor) -> None:
        horovod: Any = self.optimizer
        with self._ranks.torch_collectives():
            super()._backward(loss)
            started = [handle for handle, _ in horovod._handles.values()]
            self._ranks.until_done(handle for handle in started if handle is not None)
            horovod.synchronize()

    def _step(self) -> None:
        horovod: Any = self.optimizer
        with horovod.skip_synchronize():
            horovod.step()


class HorovodStrategy(Strategy):
    """Data-parallel ranks by Horovod."""

    def __init__(self, ranks: Ranks, dist: Horovod) -> None:
        super().__init__(ranks)
        self._dist = dist

    def prepare(
        self,
        module: nn.Module,
        optim: Optim,
        *,
        undecayed: Iterable[Tensor] = (),
        overlap: bool = False,
    ) -> Trained:
        if overlap and self.ranks.size > 1:
            assert isinstance(self.ranks, HorovodRanks)
            return Overlapped(module, optim, undecayed, self.ranks, self._dist)
        return Averaged(module, optim, undecayed, self.ranks)
