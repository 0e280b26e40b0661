"""What the learner loop asks of an algorithm."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import gear
from gear.train.config import Config
from gear.train.models.exported import Exported
from gear.train.ranks import Ranks
from gear.train.strategies import Trained, make_strategy
from gear.train.tasks.environment import Environment
from gear.window import Outputs


class Player(Protocol):
    """Plays one episode by the actions that an algorithm holds for the best."""

    def __call__(self, view: NDArray[Any], reward: float) -> NDArray[Any] | int:
        """The action, seeing `view`; reward: of the previous action, 0 at the start."""
        ...


class Algorithm(ABC):
    """Learns from batches; OffPolicy or Offline.

    Randomness comes from torch's global generator only. Subclasses put their networks into
    `modules` and what steps them, from `strategy.prepare`, into `trained`: these are the state. A
    network that no optimiser steps does not require gradients. With several ranks every rank learns
    from its own batch, and all step together, by `Trained.descend`.
    """

    metric_names: ClassVar[tuple[str, ...]]
    score_names: Sequence[str] = ()
    launching: str = ""  # how updates come to the device and why so, where there is a choice
    outputs: Outputs  # what it asks of a loader

    def __init__(self, config: Config, env: Environment | None, ranks: Ranks) -> None:
        self.device = torch.device(ranks.device)
        self.strategy = make_strategy(config.dist, ranks)
        self._ranks = ranks
        self.modules: dict[str, nn.Module] = {}
        self.trained: dict[str, Trained] = {}
        self._sums = torch.zeros(len(self.metric_names) + 1, device=self.device)  # last: a count
        self._one = torch.ones((), device=self.device)

    def ready_to_play(self) -> None:
        """Before the ranks play, each its own episodes; collective."""
        return

    @abstractmethod
    def player(self) -> Player:
        """Plays one episode greedily; draws no random number."""

    def exported(self) -> Exported | None:
        """The network that plays, to be used without the trainer; None: it needs more than what
        one step shows. After `ready_to_play`."""
        return None

    def scores(self) -> Mapping[str, float]:
        """How well it does on data that it does not learn from; `score_names` in this order.

        After `ready_to_play`; draws no random number; collective, and the same on all ranks.
        """
        return {}

    @abstractmethod
    def learn(self, batch: gear.Batch) -> Tensor:
        """One update; returns the absolute TD error of each transition, float32 [B]."""

    def share(self) -> None:
        """Gives every rank the networks of rank 0; once, before all else; collective."""
        for trained in self.trained.values():
            trained.share()
        for module in self._followers().values():
            self._ranks.broadcast(module.state_dict().values())

    def stand_by(self) -> None:
        """What a rank that only acts does while the others `learn`; collective."""
        for trained in self.trained.values():
            trained.stand_by()

    def hand_over(self) -> None:
        """Gives the ranks that only act the networks of rank 0; collective."""
        for module in self.modules.values():
            self._ranks.broadcast(module.state_dict().values())

    def digest(self) -> str:
        """Of the bytes that every rank has whole: equal on all ranks, or they have come apart."""
        found = hashlib.sha256()
        tensors = [t for trained in self.trained.values() for t in trained.replicated()]
        tensors += [t for m in self._followers().values() for t in m.state_dict().values()]
        for tensor in tensors:
            found.update(tensor.detach().cpu().numpy().tobytes())
        return found.hexdigest()

    def record(self, *values: Tensor) -> None:
        """Add one update's metrics, in the order of `metric_names`; costs no synchronisation."""
        self._sums += torch.stack([*(value.detach() for value in values), self._one])

    def metrics(self) -> dict[str, float]:
        """Means over this rank's updates since the previous call; empty if there was none."""
        sums, count = self.take_sums()
        if count == 0:
            return {}
        return dict(zip(self.metric_names, (sums / count).tolist(), strict=True))

    def peek(self) -> dict[str, float]:
        """As `metrics`, which then gives them still."""
        *sums, count = self._sums.tolist()
        return {name: x / max(count, 1) for name, x in zip(self.metric_names, sums, strict=True)}

    def take_sums(self) -> tuple[Tensor, int]:
        """Sums over this rank's updates since the previous call, on the CPU, and their number.

        Waits for the GPU.
        """
        sums = self._sums.cpu().clone()
        self._sums.zero_()
        return sums[:-1], int(sums[-1])

    def recorded(self) -> Tensor:
        """What `take_sums` would give: a rank's own, beside the state that all have."""
        return self._sums.cpu().clone()

    def restore_recorded(self, recorded: Tensor) -> None:
        self._sums.copy_(recorded)

    def state_dict(self) -> dict[str, Any]:
        """The same at any number of ranks; collective. Rank 0 has it whole."""
        return {
            "trained": {name: trained.state_dict() for name, trained in self.trained.items()},
            "modules": {name: module.state_dict() for name, module in self._followers().items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """After `share`; waits for no other rank."""
        for name, trained in self.trained.items():
            trained.load_state_dict(state["trained"][name])
        for name, module in self._followers().items():
            module.load_state_dict(state["modules"][name])

    def _followers(self) -> dict[str, nn.Module]:
        """The networks that no optimiser steps."""
        return {
            name: module
            for name, module in self.modules.items()
            if not any(p.requires_grad for p in module.parameters())
        }


class Offline(Algorithm):
    """Learns from data that is there before, and does not act.

    Attributes:
        chosen: what it decided itself, by name, and why.
        unit: what a batch is drawn of: steps, or whole episodes.
    """

    chosen: Mapping[str, str]
    unit: ClassVar[str] = "step"

    @abstractmethod
    def look(self) -> object:
        """What the data is like, in words by `str`; once, before `open`.

        InvalidArgument if it does not fit.
        """

    @abstractmethod
    def open(self, group: gear.Group) -> gear.ReplayBuffer:
        """The data; collective."""
