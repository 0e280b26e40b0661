"""How ranks train one model together; `make_strategy` is the one place that knows the ways."""

from __future__ import annotations

from gear.train.config import Ddp, Deepspeed, Fsdp2, Horovod, Single
from gear.train.ranks import Ranks
from gear.train.strategies.base import Strategy, Trained
from gear.train.strategies.ddp import DdpStrategy
from gear.train.strategies.single import SingleStrategy

__all__ = ["Strategy", "Trained", "make_strategy"]


def make_strategy(dist: Single | Ddp, ranks: Ranks) -> Strategy:
    """The strategy that the group `dist` names."""
    if isinstance(dist, Fsdp2):
        # Here, as what it imports takes a second that other runs need not spend.
        from gear.train.strategies.fsdp2 import Fsdp2Strategy

        return Fsdp2Strategy(ranks, dist)
    if isinstance(dist, Deepspeed):
        from gear.train.strategies.deepspeed import DeepspeedStrategy

        return DeepspeedStrategy(ranks, dist)
    if isinstance(dist, Horovod):
        from gear.train.strategies.horovod import HorovodStrategy

        return HorovodStrategy(ranks, dist)
    if isinstance(dist, Ddp):
        return DdpStrategy(ranks, dist.num_learners(ranks.size))
    return SingleStrategy(ranks)
