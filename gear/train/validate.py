"""Checks a configuration once, before anything is built; every complaint is one line."""

from __future__ import annotations

from collections.abc import Collection
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
_CHOICES: dict[str, Collection[str]] = {
    "algo.name": ALGORITHMS,
    "model.name": ("mlp", "cnn"),
    "optim.name": OPTIMIZERS,
    "replay.sampler": ("uniform", "weighted"),
}


def validate(cfg: DictConfig) -> None:
    """Raises InvalidArgument naming the key, what was given and what is allowed."""
    for key, least in _AT_LEAST.items():
        value = OmegaConf.select(cfg, key)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            _refuse(key, value, f"a whole number of at least {least}")
    for key, choices in _CHOICES.items():
        if OmegaConf.select(cfg, key) not in choices:
            _refuse(key, OmegaConf.select(cfg, key), ", ".join(choices))
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
    if cfg.algo.learning_starts <= cfg.algo.n_step:
        _refuse(
            "algo.learning_starts",
            cfg.algo.learning_starts,
            f"more than algo.n_step={cfg.algo.n_step}, so that a whole transition is stored",
        )


def _number(cfg: Any, key: str) -> float:
    value = OmegaConf.select(cfg, key)
    if not isinstance(value, (int, float)):
        _refuse(key, value, "a number")
    return float(value)


def _refuse(key: str, value: object, allowed: str) -> None:
    raise gear.InvalidArgument(f"[train] {key}={value} is not possible: allowed is {allowed}")
