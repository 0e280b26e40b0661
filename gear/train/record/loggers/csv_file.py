"""Metrics as a table in a file."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from gear.train.record.loggers.writer import Row


class CsvWriter:
    """`metrics.csv`: step and the given columns; a value that is missing stays empty.

    An existing file is continued: rows after `step` belong to a future that a resumed run replaces,
    and a torn last line is dropped with them.
    """

    def __init__(self, run_dir: Path, columns: Sequence[str], step: int) -> None:
        path = run_dir / "metrics.csv"
        names = ["step", *columns]
        kept = _rows_until(path, names, step) if step and path.exists() else []
        self._file = path.open("w", newline="", encoding="utf-8")
        self._rows = csv.DictWriter(self._file, names, restval="")
        self._rows.writeheader()
        self._rows.writerows(kept)
        self._file.flush()

    def write(self, step: int, row: Row) -> None:
        self._rows.writerow({"step": step, **{k: f"{v:.6g}" for k, v in row.items()}})
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _rows_until(path: Path, names: list[str], step: int) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if None not in row and None not in row.values()]
    return [{name: row.get(name, "") for name in names} for row in rows if int(row["step"]) <= step]
