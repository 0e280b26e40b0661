"""Metrics as a table in a file."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path

import gear
from gear.train.record.loggers.writer import Kept, Row

FILE = "metrics.csv"


class CsvWriter:
    """`metrics.csv`: step and the given columns; a value that is missing stays empty.

    kept: the rows that it begins with, in place of those of an existing file.
    """

    def __init__(self, run_dir: Path, columns: Sequence[str], kept: Kept) -> None:
        path, names = run_dir / FILE, ["step", *columns]
        beside = path.with_suffix(".csv.part")  # killed here, the run still has its rows
        with beside.open("w", newline="", encoding="utf-8") as file:
            rows = csv.DictWriter(file, names, restval="", extrasaction="ignore")
            rows.writeheader()
            rows.writerows({"step": step, **row} for step, row in kept)
        os.replace(beside, path)
        self._file = path.open("a", newline="", encoding="utf-8")
        self._rows = csv.DictWriter(self._file, names, restval="")

    def write(self, step: int, row: Row) -> None:
        self._rows.writerow({"step": step, **{k: f"{v:.6g}" for k, v in row.items()}})
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def rows_until(run_dir: Path, step: int) -> Kept:
    """The rows of an earlier part of the run up to `step`, as they stand in its `metrics.csv`.

    Later ones belong to a future that a resumed run replaces, and so does a torn last line; of a
    run that starts afresh (0) there is none. CorruptData if the file is another table.
    """
    path = run_dir / FILE
    if step == 0 or not path.exists():
        return []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            whole = [r for r in csv.DictReader(file) if None not in r and None not in r.values()]
        numbered = [(int(row.pop("step")), row) for row in whole]
        for _, row in numbered:
            all(map(float, filter(None, row.values())))
    except (ValueError, KeyError, csv.Error) as error:
        raise gear.CorruptData(
            f"[train] {path} is not the table of a run's metrics, and its rows are to be kept: "
            f"{error}; move it away"
        ) from error
    return [(of, {k: v for k, v in row.items() if v}) for of, row in numbered if of <= step]
