"""Hydra's configuration of `gear train`, as a command line makes it."""

from __future__ import annotations

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import DictConfig

from gear.train.app import CONF


def compose(*overrides: str, hydra: bool = False) -> DictConfig:
    """Unchecked. hydra: with Hydra's own part."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra_compose("train", list(overrides), return_hydra_config=hydra)
