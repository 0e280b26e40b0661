"""Metrics for TensorBoard."""

from __future__ import annotations

from pathlib import Path

from gear.train.record.loggers.writer import Row


class TensorBoardWriter:
    """TensorBoard events in the run directory; `tensorboard --logdir RUN_DIR` shows them.

    Events of an earlier part after `step`, or all of them if the run starts afresh (0), stay in
    their files and are marked as replaced.
    """

    def __init__(self, run_dir: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        events = run_dir / "tensorboard"
        replaced_from = (step + 1 if step else 0) if events.exists() else None
        self._events = SummaryWriter(str(events), purge_step=replaced_from)

    def write(self, step: int, row: Row) -> None:
        for name, value in row.items():
            self._events.add_scalar(name, value, step)

    def close(self) -> None:
        self._events.close()
