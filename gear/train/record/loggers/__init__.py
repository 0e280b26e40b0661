"""Where metrics go. A writer takes rows of {name: number}; `make_writers` knows their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import gear
from gear.train.config import Config
from gear.train.installed import has
from gear.train.record.loggers.csv_file import CsvWriter, rows_until
from gear.train.record.loggers.tensorboard import TensorBoardWriter
from gear.train.record.loggers.wandb import WandbWriter
from gear.train.record.loggers.writer import MetricWriter

__all__ = ["MetricWriter", "check_installed", "make_writers"]

# Module that a writer needs -> what installs it.
NEEDED = {"tensorboard": "gear-replay[train]", "wandb": "gear-replay[wandb]"}


def check_installed(writers: Sequence[str]) -> None:
    """InvalidArgument if a writer lacks its package."""
    for name in writers:
        if name in NEEDED and not has(name):
            raise gear.InvalidArgument(
                f"[train] logger.writers=[{','.join(writers)}]: {name} is not installed: "
                f"pip install '{NEEDED[name]}', or choose another, as in logger=csv"
            )


def make_writers(
    config: Config, run_dir: Path, columns: Sequence[str], step: int
) -> list[MetricWriter]:
    """Those of the group `logger`, continuing at `step` (0: from the beginning): each has the rows
    up to there once, whatever a run that was killed had written beyond."""
    logger, kept = config.logger, rows_until(run_dir, step)
    made: Mapping[str, Callable[[], MetricWriter]] = {
        "csv": lambda: CsvWriter(run_dir, columns, kept),
        "tensorboard": lambda: TensorBoardWriter(run_dir, step),
        "wandb": lambda: WandbWriter(run_dir, logger, config.yaml, kept),
    }
    return [made[name]() for name in logger.writers]
