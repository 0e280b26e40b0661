"""Which checkpoint a run continues, and with which configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

import gear
from gear.train.record.checkpoint import Checkpoint, find, find_newest
from gear.train.tasks.known import is_known

# What may differ between a checkpoint and the run that continues it.
FREE_KEYS = frozenset(
    {
        *("total_steps", "checkpoint", "trust", "checkpoint_every", "keep_checkpoints"),
        *("eval_every", "eval_episodes"),
        *("threads", "device", "deterministic", "logger", "dist", "rank", "world_size"),
    }
)

# What a checkpoint may not choose by itself, and when it chooses nothing by it.
HARMLESS: dict[str, Callable[[Any], bool]] = {
    "env": lambda env: is_known(env or {}),
    "data.path": lambda path: path is None,
    "dist.master_addr": lambda name: name in (None, "127.0.0.1"),
    "dist.config": lambda values: values is None or values == _deepspeeds_default(),
    "logger.mode": lambda mode: mode in (None, "offline"),
}
MAKES_AN_ENVIRONMENT = ("api", "id", "kwargs")


def choose(
    cfg: DictConfig, overrides: Sequence[str], run_dir: Path
) -> tuple[DictConfig, Checkpoint | None]:
    """The configuration to run with and the checkpoint to start from (None: start afresh).

    checkpoint=DIR takes the configuration saved there; `overrides`, what the user typed, may change
    FREE_KEYS, and must say what is not HARMLESS. checkpoint=auto looks at the runs beside `run_dir`
    and takes the newest whose configuration equals `cfg`, so that the same command starts a run and
    continues it.
    """
    if cfg.checkpoint is None:
        return cfg, None
    if cfg.checkpoint == "auto":
        return cfg, find_newest(run_dir.parent, lambda saved: _fixed(saved) == _fixed(cfg))
    found = find(Path(str(cfg.checkpoint)))
    saved = found.config()
    saved.rank, saved.world_size, saved.trust = cfg.rank, cfg.world_size, cfg.trust
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
    _check_trust(saved, cfg, found.path)
    return saved, found


def _keys(overrides: Sequence[str]) -> list[str]:
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    keys = [o.key_or_group.split("@")[0] for o in parsed]
    return [key for key in keys if key.split(".")[0] != "hydra"]


def _check_trust(saved: DictConfig, cfg: DictConfig, path: Path) -> None:
    """InvalidArgument if the checkpoint, which may be a stranger's, chooses what only the user may:
    what is imported, which of the user's files are read, to whom something is sent.

    What the command line says itself, as `cfg` has it, is the user's choice.
    """
    if cfg.trust is True:
        return
    for key in asked_for(saved):
        asked = _choice(_plain(saved, key))
        if asked != _choice(_plain(cfg, key)):
            raise gear.InvalidArgument(
                f"[train] {path} asks for {key}={asked!r}, and a checkpoint may be a stranger's: "
                "say the same on the command line, as the run did that saved it, or add "
                "trust=true if you trust who made it"
            )


def asked_for(saved: DictConfig) -> list[str]:
    """The keys by which this configuration chooses what is not HARMLESS."""
    return [key for key, harmless in HARMLESS.items() if not harmless(_plain(saved, key))]


def _plain(cfg: DictConfig, key: str) -> Any:
    value = OmegaConf.select(cfg, key)
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _choice(value: Any) -> Any:
    """Of an environment what it is made by."""
    if isinstance(value, dict) and "id" in value:
        return {key: value.get(key) for key in MAKES_AN_ENVIRONMENT}
    return value


def _deepspeeds_default() -> object:
    path = Path(__file__).parents[1] / "conf" / "dist" / "deepspeed.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8"))["config"]


def _fixed(cfg: DictConfig) -> dict[Any, Any]:
    values = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(values, dict)
    fixed = {key: value for key, value in values.items() if key not in FREE_KEYS}
    dist = values.get("dist")
    return {**fixed, "dist": dist.get("name") if isinstance(dist, dict) else None}
