"""Metrics for Weights & Biases."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gear.train.config import Logger, Wandb
from gear.train.record import folder
from gear.train.record.loggers.writer import Kept, Row


class WandbWriter:
    """A run of wandb in RUN_DIR/wandb, drawn over `env_steps`, with the word of the run as its id.

    mode offline keeps it there, and `wandb sync RUN_DIR/wandb/offline-run-*` sends it later; online
    sends it while it is made. Rows are numbered over all parts of a run. Offline, what an earlier
    part has kept is replaced by a new record that begins with the rows `kept`; online, the rows
    that wandb has, by their numbers, are not sent again.
    """

    def __init__(self, run_dir: Path, logger: Logger, config: str, kept: Kept) -> None:
        import wandb

        assert isinstance(logger, Wandb)
        online = logger.mode == "online"
        if not online:
            _remove_earlier(run_dir / "wandb")
        values: Any = OmegaConf.to_container(OmegaConf.create(config))
        self._run = wandb.init(
            project=logger.project,
            mode="online" if online else "offline",
            id=folder.named(run_dir),
            resume="allow" if online else None,
            name=run_dir.name,
            dir=run_dir,
            config=values,
            settings=wandb.Settings(console="off", silent=True),
        )
        self._run.define_metric("*", step_metric="env_steps")
        self._number = 0
        for step, row in kept:
            self.write(step, {name: float(value) for name, value in row.items()})

    def write(self, step: int, row: Row) -> None:
        if self._number >= self._run.step:
            self._run.log({"env_steps": step, **row}, step=self._number, commit=True)
        self._number += 1

    def close(self) -> None:
        self._run.finish()


def _remove_earlier(parts: Path) -> None:
    """By its name first: wandb's own program may still write into the newest."""
    for part in parts.glob("offline-run-*"):
        other = part.with_name(f"replaced-{part.name}")
        part.rename(other)
        shutil.rmtree(other, ignore_errors=True)
