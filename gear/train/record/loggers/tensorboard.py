"""Metrics for TensorBoard."""

from __future__ import annotations

from pathlib import Path

from gear.train.record.loggers.writer import Row


class TensorBoardWriter:
    """TensorBoard events in the run directory; `tensorboard --logdir RUN_DIR` shows them."""

    def __init__(self, run_dir: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purge_step = step + 1 if step else None
        self._events = SummaryWriter(str(run_dir / "tensorboard"), purge_step=purge_step)

    def write(self, step: int, row: Row) -> None:
        for name, value in row.items():
            self._events.add_scalar(name, value, step)

    def close(self) -> None:
        self._events.close()
