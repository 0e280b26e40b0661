"""The seam between an algorithm and the ways in which ranks train one model together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import gear
from gear.train.config import Optim
from gear.train.ranks import Ranks

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


class Trained(ABC):
    """A module and its optimiser, which all ranks step together.

    Attributes:
        model: what to call forward on, from `share` on: it may be another object than the module
            that was prepared.
        optimizer: what steps it, from `share` on.
        lr: of the optimiser.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    lr: float

    @abstractmethod
    def share(self) -> None:
        """Gives every rank the weights of rank 0; once, before the first forward; collective."""

    @abstractmethod
    def descend(self, loss: Tensor, *, max_norm: float | None = None) -> None:
        """One step along the gradient of the mean of `loss` over the ranks; collective.

        `loss` is a mean over the rank's batch; every parameter takes part in it.
        max_norm: the gradient is shortened to it, after averaging: as one rank would.
        """

    def stand_by(self) -> None:
        """Takes part in a `descend` of the ranks that learn, without a loss; collective.

        This rank's weights stay as they are.
        """
        raise gear.InvalidArgument(
            "[train] dist.learners: this strategy has no ranks that only act: use dist=ddp"
        )

    def set_lr(self, lr: float) -> None:
        """From the next `descend` on. It is no part of the state: who changes it sets it again."""
        self.lr = lr
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The whole model and optimiser, the same at any number of ranks; collective.

        {"model": name -> tensor, "optimizer": parameter name -> its values}: copies in the host's
        memory. Rank 0 has it; other ranks may have empty mappings.
        """

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over the whole state, which every rank gives, after `share`; waits for none."""

    def uncapturable(self) -> str:
        """Why `descend` cannot be part of a CUDA graph; empty: it can."""
        return "this way of training has ranks meet in the middle of an update"

    def replicated(self) -> Iterable[Tensor]:
        """The values that every rank holds whole and alike."""
        return ()


class Strategy(ABC):
    """Makes a module and an optimiser into something that all ranks train together."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    @abstractmethod
    def prepare(
        self,
        module: nn.Module,
        optim: Optim,
        *,
        undecayed: Iterable[Tensor] = (),
        overlap: bool = False,
    ) -> Trained:
        """Not collective: `Trained.share` is.

        undecayed: parameters that `weight_decay` must not pull to zero.
        overlap: the module is called once, through `Trained.model`, for each `descend`, and its
            gradients may be averaged while others are worked out. Otherwise its parts may be
            called as often as one likes, themselves and without gradients.
        Raises InvalidArgument if this strategy needs `overlap` and it is false.
        """


def on_host(value: Tensor) -> Tensor:
    """A copy in the host's memory, which later steps do not change."""
    return value.detach().to("cpu", copy=True)


def needs_one_loss(strategy: str, overlap: bool) -> None:
    """InvalidArgument unless it is a model of one loss that is to be trained."""
    if not overlap:
        raise gear.InvalidArgument(
            f"[train] dist={strategy} trains models with one loss, as algo=dt has, and this "
            "algorithm has several: use dist=ddp"
        )


def parameters_of(module: nn.Module, undecayed: Iterable[Tensor] = ()) -> list[dict[str, Any]]:
    """The parameter groups of an optimiser: the decayed ones, and the others where there are."""
    alone = {id(tensor) for tensor in undecayed}
    trained = [p for p in module.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [{"params": [p for p in trained if id(p) not in alone]}]
    if alone:
        apart = [p for p in trained if id(p) in alone]
        groups.append({"params": apart, "weight_decay": 0.0})
    return groups


def make_optimizer(groups: Collection[dict[str, Any]], optim: Optim) -> torch.optim.Optimizer:
    """The optimiser of the group `optim`, in its fused form (one kernel for all parameters)."""
    optimizer: torch.optim.Optimizer = OPTIMIZERS[optim.name](
        groups,
        lr=optim.lr,
        betas=optim.betas,
        eps=optim.eps,
        weight_decay=optim.weight_decay,
        fused=True,
    )
    return optimizer
