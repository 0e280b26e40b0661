"""DeepSpeed's engine trains the model; ZeRO shares out what dist.config says."""

from __future__ import annotations

import copy
import logging
import os
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

import gear
from gear.train.config import Deepspeed, Optim
from gear.train.ranks import Ranks
from gear.train.ranks.torch_group import timeout_of
from gear.train.strategies.base import (
    Strategy,
    Trained,
    make_optimizer,
    needs_one_loss,
    on_host,
    parameters_of,
)
from gear.train.strategies.named import Named

MOMENTS = ("exp_avg", "exp_avg_sq")  # what Adam keeps for a parameter, besides the step


class Engine(Trained):
    """A DeepSpeedEngine of ZeRO stage 0 to 3, with torch's Adam."""

    def __init__(
        self,
        module: nn.Module,
        optim: Optim,
        undecayed: Iterable[Tensor],
        ranks: Ranks,
        dist: Deepspeed,
    ) -> None:
        self.module = module
        self.lr = optim.lr
        self._ranks = ranks
        self._config = {
            **copy.deepcopy(dist.config),
            "train_micro_batch_size_per_gpu": 1,  # only its log would use it
            "gradient_accumulation_steps": 1,
        }
        self._stage: int = dist.config["zero_optimization"]["stage"]
        self._base = make_optimizer(parameters_of(module, undecayed), optim)

    def share(self) -> None:
        ranks = self._ranks
        ranks.joined()
        ranks.broadcast(self.module.state_dict().values())
        deepspeed = _imported(ranks.device)
        # The engine takes the GPU of this number, which need not be the one that a launcher told.
        index = torch.device(ranks.device).index
        os.environ["LOCAL_RANK"] = str(ranks.group.local_rank if index is None else index)
        ranks.at_close(_forget_groups)
        with ranks.torch_collectives():
            deepspeed.init_distributed(dist_backend=ranks.backend, dist_init_required=False)
            # Groups that it makes of its own would wait for half an hour.
            deepspeed.comm.comm.cdb.new_group = partial(
                torch.distributed.new_group, timeout=timeout_of(ranks.group, ranks.backend)
            )
            try:
                self._engine, self.optimizer, _, _ = deepspeed.initialize(
                    model=self.module,
                    optimizer=self._base,
                    config=self._config,
                    dist_init_required=False,
                )
            except _refusals() as error:
                said = " ".join(str(error).split()) or type(error).__name__
                raise gear.InvalidArgument(
                    f"[train] DeepSpeed refuses dist.config: {said}; its keys are in "
                    "https://www.deepspeed.ai/docs/config-json"
                ) from error
        low = next(p.dtype for p in self.module.parameters() if p.is_floating_point())
        self.model = Named(_Cast(self._engine, low), ranks)

    def descend(self, loss: Tensor, *, max_norm: float | None = None) -> None:
        # ZeRO's optimisers keep what the engine's configuration said when they were made.
        self._engine._config.gradient_clipping = max_norm or 0.0
        zero: Any = self.optimizer
        if hasattr(zero, "clip_grad"):
            zero.clip_grad = max_norm or 0.0
        with self._ranks.torch_collectives():
            self._engine.backward(loss)
            self._engine.step()

    def state_dict(self) -> dict[str, Any]:
        self._link()
        with self._ranks.torch_collectives():
            whole = {id(p): on_host(self._whole(p)) for p in self.module.parameters()}
            stepped = self._steps()
            optimizer = {
                name: {
                    "step": torch.tensor(float(stepped)),
                    **{key: on_host(self._whole(p, key)) for key in MOMENTS},
                }
                for name, p in self.module.named_parameters()
                if stepped and p.requires_grad
            }
        values = self.module.state_dict(keep_vars=True)
        model = {name: whole[id(v)] if id(v) in whole else on_host(v) for name, v in values.items()}
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        saved = state["optimizer"]
        if saved:
            self._make_moments(next(iter(saved.values()))["step"])
        named = dict(self.module.named_parameters())
        for name, p in named.items():
            self._set(p, state["model"][name])
            for key in MOMENTS if name in saved else ():
                self._set(p, saved[name][key], key)
        for name, value in self.module.named_buffers():
            if name in state["model"]:
                value.copy_(state["model"][name])

    def replicated(self) -> Iterable[Tensor]:
        return () if self._stage == 3 else self.module.state_dict().values()

    def _steps(self) -> float:
        """Optimiser steps so far."""
        counts = [values["step"] for values in self._base.state.values() if "step" in values]
        return float(counts[0]) if counts else 0.0

    def _whole(self, p: Tensor, key: str | None = None) -> Tensor:
        """The float32 weights, or what the optimiser has for them under `key`; collective."""
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        if not hasattr(p, "ds_id") and not hasattr(p, "_hp_mapping"):  # nothing is shared out
            return p if key is None else self._base.state[p][key]
        found: Tensor = (
            safe_get_full_fp32_param(p) if key is None else safe_get_full_optimizer_state(p, key)
        )
        return found

    @torch.no_grad()
    def _set(self, p: Tensor, value: Tensor, key: str | None = None) -> None:
        """Takes over the whole `value`, or this rank's share of it."""
        from deepspeed import utils

        if hasattr(p, "ds_id"):
            length = p.ds_tensor.numel()  # type: ignore[attr-defined]
            flat = value.new_zeros(length * self._ranks.size)
            flat[: value.numel()] = value.flatten()
            share = flat[self._ranks.rank * length :][:length].to(self._ranks.device)
            if key is not None:
                utils.safe_set_local_optimizer_state(p, share, key)
                return
            utils.safe_set_local_fp32_param(p, share)
            p.ds_tensor.data.copy_(share)  # type: ignore[attr-defined]
            if p.numel() == value.numel():  # small: every rank keeps it whole
                p.data.copy_(value)
        elif hasattr(p, "_hp_mapping"):
            if key is not None:
                utils.safe_set_full_optimizer_state(p, value.to(p.device), key)
                return
            utils.safe_set_full_fp32_param(p, value.to(p.device))
            p.data.copy_(value)
        else:
            (p.data if key is None else self._base.state[p][key]).copy_(value)

    def _make_moments(self, step: Tensor) -> None:
        """What the first step of Adam would make, with `step` steps behind it."""
        kept = [p for group in self._base.param_groups for p in group["params"]]
        # Stage 3 gives its flat tensors to the optimiser while that steps, and only then.
        for p in getattr(self.optimizer, "fp32_partitioned_groups_flat", kept):
            self._base.state[p] = {
                "step": step.to(p.device, copy=True),
                **{key: torch.zeros_like(p) for key in MOMENTS},
            }
        self._link()

    def _link(self) -> None:
        """Lets ZeRO 1 and 2 know where the optimiser keeps the values of all parameter groups: it
        looks after the step of the first group, when the others have none."""
        zero: Any = self.optimizer
        if hasattr(zero, "_lazy_init_hp_params_optimizer_state"):
            zero._hp_optimizer_states_linked = False
            zero._lazy_init_hp_params_optimizer_state()


class DeepspeedStrategy(Strategy):
    """Data-parallel ranks under DeepSpeed, for models with one loss."""

    def __init__(self, ranks: Ranks, dist: Deepspeed) -> None:
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
        needs_one_loss("deepspeed", overlap)
        if find_spec("deepspeed") is None:
            raise gear.InvalidArgument(
                "[train] dist=deepspeed: DeepSpeed is not installed: load the site's module that "
                "has it, pip install deepspeed, or use dist=fsdp2, which shares out a model, too"
            )
        return Engine(module, optim, undecayed, self.ranks, self._dist)


class _Cast(nn.Module):
    """Calls the engine with floats in the type of its weights; what it returns is float32."""

    def __init__(self, engine: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.engine = engine
        self._dtype = dtype

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self._dtype == torch.float32:
            return self.engine(*args, **kwargs)
        args, kwargs = _with_floats(self._dtype, (args, kwargs))
        return _with_floats(torch.float32, self.engine(*args, **kwargs))


def _with_floats(dtype: torch.dtype, values: Any) -> Any:
    return torch.utils._pytree.tree_map_only(
        Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, values
    )


def _forget_groups() -> None:
    """DeepSpeed keeps the process groups of its first engine for all later ones of the process."""
    from deepspeed import comm
    from deepspeed.utils import groups

    comm.comm.cdb = None
    groups._release_process_group_references()


def _refusals() -> tuple[type[Exception], ...]:
    """What DeepSpeed raises if its configuration makes no sense."""
    from deepspeed.runtime.config import DeepSpeedConfigError
    from pydantic import ValidationError

    return ValidationError, DeepSpeedConfigError, AssertionError


def _imported(device: str) -> Any:
    """The package, for this kind of device, without its log and without compiling anything."""
    os.environ.setdefault("DS_ACCELERATOR", torch.device(device).type)
    import deepspeed
    from deepspeed.git_version_info import installed_ops

    deepspeed.utils.logger.setLevel(logging.WARNING)
    # It calls what torch has newer names for.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    op = "deepspeed_shm_comm"  # of no use in training, and minutes of a compiler's time
    if not installed_ops.get(op):
        deepspeed.ops.__compatible_ops__[op] = False
    return deepspeed
