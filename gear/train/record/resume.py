"""Which checkpoint a run continues, and with which configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

import gear
from gear.train.record.checkpoint import Checkpoint, find, find_newest

# What may differ between a checkpoint and the run that continues it.
FREE_KEYS = frozenset(
    {
        *("total_steps", "checkpoint", "checkpoint_every", "keep_checkpoints"),
        *("eval_every", "eval_episodes"),
        *("threads", "device", "deterministic", "logger", "dist", "rank", "world_size"),
    }
)


def choose(
    cfg: DictConfig, overrides: Sequence[str], run_dir: Path
) -> tuple[DictConfig, Checkpoint | None]:
    """The configuration to run with and the checkpoint to start from (None: start afresh).

    checkpoint=DIR takes the configuration saved there; `overrides`, what the user typed, may change
    FREE_KEYS. checkpoint=auto looks at the runs beside `run_dir` and takes the newest whose
    configuration equals `cfg`, so that the same command starts a run and continues it.
    """
    if cfg.checkpoint is None:
        return cfg, None
    if cfg.checkpoint == "auto":
        return cfg, find_newest(
            run_dir.parent, lambda saved: _fixed(complete(saved)) == _fixed(cfg)
        )
    found = find(Path(str(cfg.checkpoint)))
    saved = complete(found.config())
    saved.rank, saved.world_size = cfg.rank, cfg.world_size
    for key in _keys(overrides):
        root = key.split(".")[0]
        given = OmegaConf.select(cfg, key)
        if root in FREE_KEYS:
            OmegaConf.update(saved, key, given, merge=False, force_add=True)
        elif given != OmegaConf.select(saved, key):
            raise gear.InvalidArgument(
                f"[train] {key} differs from the run at {found.path}, and a run cannot change it: "
                f"leave {key} out, or start afresh without checkpoint="
            )
    return saved, found


def _keys(overrides: Sequence[str]) -> list[str]:
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    keys = [o.key_or_group.split("@")[0] for o in parsed]
    return [key for key in keys if key.split(".")[0] != "hydra"]


def complete(saved: DictConfig) -> DictConfig:
    """With the keys that a configuration of an earlier version lacks."""
    earlier = {
        "replay": {"tier": "host"},
        "dist": {"name": "single"},
        "data": {"name": "saved" if OmegaConf.select(saved, "data.path") else "none", "path": None},
        "env": {"api": "gymnasium"},
        "deterministic": True,
        "logger": {"name": "files"},
        "eval_every": 0,
        "eval_episodes": 5,
        "rank": None,
        "world_size": None,
    }
    complete = OmegaConf.merge(earlier, saved)
    assert isinstance(complete, DictConfig)
    return complete


def _fixed(cfg: DictConfig) -> dict[Any, Any]:
    values = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(values, dict)
    fixed = {key: value for key, value in values.items() if key not in FREE_KEYS}
    return {**fixed, "dist": values["dist"]["name"]}
