"""Each rank holds a share of the weights, gradients and optimiser; torch fetches what is needed."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from gear.train.config import Fsdp2, Optim
from gear.train.ranks import Ranks
from gear.train.strategies.base import (
    Strategy,
    Trained,
    make_optimizer,
    needs_one_loss,
    parameters_of,
)
from gear.train.strategies.named import Named

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class Sharded(Trained):
    """`fully_shard` over all ranks: the layers of every ModuleList one by one, then the rest.

    The weights are fetched layer by layer in forward and backward, the mean gradient is shared out
    as it appears, and each rank steps its share.
    """

    def __init__(
        self,
        module: nn.Module,
        optim: Optim,
        undecayed: Iterable[Tensor],
        ranks: Ranks,
        dist: Fsdp2,
    ) -> None:
        self.module = module
        self.lr = optim.lr
        self._optim = optim
        self._ranks = ranks
        self._dist = dist
        alone = {id(tensor) for tensor in undecayed}
        self._undecayed = [name for name, p in module.named_parameters() if id(p) in alone]

    def share(self) -> None:
        ranks, dist = self._ranks, self._dist
        ranks.broadcast(self.module.state_dict().values())
        with ranks.torch_collectives():
            mesh = DeviceMesh.from_group(ranks.joined(), torch.device(ranks.device).type)
            precision = MixedPrecisionPolicy(
                param_dtype=getattr(torch, dist.param_dtype),
                reduce_dtype=getattr(torch, dist.reduce_dtype),
            )
            how: dict[str, Any] = {
                "mesh": mesh,
                "reshard_after_forward": dist.reshard_after_forward,
            }
            for layers in [m for m in self.module.modules() if isinstance(m, nn.ModuleList)]:
                for layer in layers:
                    fully_shard(layer, mp_policy=precision, **how)
            whole = replace(precision, output_dtype=torch.float32)
            fully_shard(self.module, mp_policy=whole, **how)
        # An output changed in place would lose its hook: no algorithm here changes one.
        warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module .* returned a view tensor")
        self.model = Named(self.module, ranks)
        shares = dict(self.module.named_parameters())
        groups = parameters_of(self.module, [shares[name] for name in self._undecayed])
        self.optimizer = make_optimizer(groups, self._optim)

    def descend(self, loss: Tensor, *, max_norm: float | None = None) -> None:
        self.optimizer.zero_grad()
        with self._ranks.torch_collectives():
            loss.backward()  # type: ignore[no-untyped-call]
            if max_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.module.parameters(), max_norm)
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        with self._ranks.torch_collectives():
            model = get_model_state_dict(self.module, options=WHOLE)
            optimizer = get_optimizer_state_dict(self.module, self.optimizer, options=WHOLE)
        found = {"model": model, "optimizer": _apart(optimizer.get("state", {}))}
        is_own = self._ranks.averaging == 1
        return copy.deepcopy(found) if is_own else found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        set_model_state_dict(self.module, dict(state["model"]), options=WHOLE)
        names = {id(p): name for name, p in self.module.named_parameters()}
        groups = [
            {**group, "params": [names[id(p)] for p in group["params"]]}
            for group in self.optimizer.param_groups
        ]
        if state["optimizer"]:  # it has stepped
            states = _apart(state["optimizer"])
            whole: dict[str, Any] = {"state": states, "param_groups": groups}
            set_optimizer_state_dict(self.module, self.optimizer, whole, options=WHOLE)


def _apart(states: Any) -> dict[str, Any]:
    """The optimiser's values with copies of its counters, which torch hands out and takes as they
    are because they are not shared out."""
    return {
        name: {key: value if value.ndim else value.clone() for key, value in each.items()}
        for name, each in states.items()
    }


class Fsdp2Strategy(Strategy):
    """Data-parallel ranks that share out one model, for models with one loss."""

    def __init__(self, ranks: Ranks, dist: Fsdp2) -> None:
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
        needs_one_loss("fsdp2", overlap)
        return Sharded(module, optim, undecayed, self.ranks, self._dist)
