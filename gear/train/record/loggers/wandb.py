"""Metrics for Weights & Biases."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gear.train.config import Logger, Wandb
from gear.train.record.loggers.writer import Row


class WandbWriter:
    """A run of wandb in RUN_DIR/wandb, drawn over `env_steps`.

    mode offline keeps it there, and `wandb sync RUN_DIR/wandb/offline-run-*` sends it later; online
    sends it while it is made. A continued run has the id of the earlier one: both are one run.
    """

    def __init__(self, run_dir: Path, logger: Logger, config: str) -> None:
        import wandb

        assert isinstance(logger, Wandb)
        online = logger.mode == "online"
        values: Any = OmegaConf.to_container(OmegaConf.create(config))
        self._run = wandb.init(
            project=logger.project,
            mode="online" if online else "offline",
            id=_id(run_dir / "wandb" / "id"),
            resume="allow" if online else None,
            name=run_dir.name,
            dir=run_dir,
            config=values,
            settings=wandb.Settings(console="off", silent=True),
        )
        self._run.define_metric("*", step_metric="env_steps")

    def write(self, step: int, row: Row) -> None:
        self._run.log({"env_steps": step, **row})

    def close(self) -> None:
        self._run.finish()


def _id(path: Path) -> str:
    """That of the run in this folder, made up the first time."""
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(uuid.uuid4().hex[:12], encoding="utf-8")
    return path.read_text(encoding="utf-8")
