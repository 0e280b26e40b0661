"""Checks a configuration once, before anything is built; every complaint is one line."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

import gear
from gear.train.algo import ALGORITHMS
from gear.train.algo.base import OPTIMIZERS
from gear.train.loggers import WRITERS

_AT_LEAST = {
    "seed": 0,
    "threads": 1,
    "total_steps": 1,
    "checkpoint_every": 0,
    "keep_checkpoints": 1,
    "env.stack": 1,
    "algo.n_step": 1,
    "algo.batch_size": 1,
    "algo.learning_starts": 0,
    "algo.train_every": 1,
    "algo.updates": 1,
    "replay.capacity": 1,
    "replay.prefetch": 0,
}
_AT_LEAST_DDP = {
    "dist.master_port": 1,
    "dist.exchange_every": 1,
}
_CHOICES: dict[str, Collection[str]] = {
    "algo.name": ALGORITHMS,
    "model.name": ("mlp", "cnn"),
    "optim.name": OPTIMIZERS,
    "replay.sampler": ("uniform", "weighted"),
    "replay.tier": ("host", "shared", "pinned", "device"),
}
_CHOICES_DDP: dict[str, Collection[str]] = {
    "dist.locality": ("first", "off"),
    "dist.transport": ("auto", "nccl", "host"),
}


def validate_dist(cfg: DictConfig) -> None:
    """The group `dist`, before this process knows the others; raises InvalidArgument."""
    _check_choices(cfg, {"dist.name": ("single", "ddp")})
    if cfg.dist.name == "ddp":
        _check_at_least(cfg, _AT_LEAST_DDP)
        _check_choices(cfg, _CHOICES_DDP)
        if not _number(cfg, "dist.timeout_s") > 0.0:
            _refuse("dist.timeout_s", cfg.dist.timeout_s, "a positive number of seconds")
    if cfg.rank is not None or cfg.world_size is not None:
        _check_at_least(cfg, {"world_size": 1, "rank": 0})
        if cfg.rank >= cfg.world_size:
            _refuse("rank", cfg.rank, f"0 to {cfg.world_size - 1}, below world_size")


def validate(cfg: DictConfig, num_ranks: int = 1) -> None:
    """Raises InvalidArgument naming the key, what was given and what is allowed."""
    _check_at_least(cfg, _AT_LEAST)
    _check_choices(cfg, _CHOICES)
    if any(name not in WRITERS for name in cfg.logger.writers):
        _refuse("logger.writers", list(cfg.logger.writers), "some of " + ", ".join(WRITERS))
    if not 0.0 < _number(cfg, "algo.gamma") <= 1.0:
        _refuse("algo.gamma", cfg.algo.gamma, "0 < gamma <= 1")
    if not _number(cfg, "optim.lr") > 0.0:
        _refuse("optim.lr", cfg.optim.lr, "a positive number")
    if cfg.replay.sampler == "weighted":
        if not 0.0 <= _number(cfg, "replay.beta") <= 1.0:
            _refuse("replay.beta", cfg.replay.beta, "0 <= beta <= 1")
        if not _number(cfg, "replay.beta_steps") >= 1:
            _refuse("replay.beta_steps", cfg.replay.beta_steps, "1 or more")
    if cfg.algo.batch_size > cfg.replay.capacity:
        _refuse(
            "algo.batch_size", cfg.algo.batch_size, f"at most replay.capacity={cfg.replay.capacity}"
        )
    if cfg.algo.learning_starts <= cfg.algo.n_step * num_ranks:
        ranks = f" times {num_ranks} ranks" if num_ranks > 1 else ""
        _refuse(
            "algo.learning_starts",
            cfg.algo.learning_starts,
            f"more than algo.n_step={cfg.algo.n_step}{ranks}, so that a whole transition is stored",
        )


def _check_at_least(cfg: DictConfig, limits: Mapping[str, int]) -> None:
    for key, least in limits.items():
        value = OmegaConf.select(cfg, key)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            _refuse(key, value, f"a whole number of at least {least}")


def _check_choices(cfg: DictConfig, allowed: Mapping[str, Collection[str]]) -> None:
    for key, choices in allowed.items():
        if OmegaConf.select(cfg, key) not in choices:
            _refuse(key, OmegaConf.select(cfg, key), ", ".join(choices))


def _number(cfg: Any, key: str) -> float:
    value = OmegaConf.select(cfg, key)
    if not isinstance(value, (int, float)):
        _refuse(key, value, "a number")
    return float(value)


def _refuse(key: str, value: object, allowed: str) -> None:
    raise gear.InvalidArgument(f"[train] {key}={value} is not possible: allowed is {allowed}")
