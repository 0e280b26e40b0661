"""Makes one Chrome trace of the logs of all ranks, for chrome://tracing and ui.perfetto.dev.

    python -m gear_mpi.trace FOLDER > trace.json

FOLDER is what GEAR_MPI_LOG named. A rank is a process of the trace. Operations of a group stand in
one row, or in several where they were under way together.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gear_mpi.errors import InvalidArgument


def events(folder: Path) -> Iterator[dict[str, Any]]:
    """The events of a trace, rank by rank.

    Raises:
        InvalidArgument: there is no log in `folder`, or one is not a log.
    """
    files = sorted(folder.glob("rank-*.csv"), key=lambda file: int(file.stem.split("-")[1]))
    if not files:
        raise InvalidArgument(
            f"[mpi] {folder} holds no rank-*.csv: give the folder that GEAR_MPI_LOG named"
        )
    for file in files:
        yield from _of_rank(file, int(file.stem.split("-")[1]))


def _of_rank(file: Path, rank: int) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
    free_from: dict[str, list[float]] = {}  # of a group -> when the last of each row ends
    threads: dict[tuple[str, int], int] = {}
    with file.open(newline="") as lines:
        try:
            rows = sorted(csv.DictReader(lines), key=lambda row: float(row["start_us"]))
        except (KeyError, ValueError, TypeError) as error:
            raise InvalidArgument(f"[mpi] {file} is no log of gear_mpi: {error!r}") from error
    for row in rows:
        group, start, took = row["group"], float(row["start_us"]), float(row["duration_us"])
        ends = free_from.setdefault(group, [])
        number = next((i for i, end in enumerate(ends) if end <= start), len(ends))
        ends[number : number + 1] = [start + took]
        if (group, number) not in threads:
            threads[group, number] = len(threads)
            yield {
                "ph": "M",
                "name": "thread_name",
                "pid": rank,
                "tid": threads[group, number],
                "args": {"name": f"group {group}" + (f", {number + 1}" if number else "")},
            }
        told = ("bytes", "dtype", "ranks", "route", "call", "failed")
        yield {
            "ph": "X",
            "name": row["operation"],
            "cat": row["route"],
            "pid": rank,
            "tid": threads[group, number],
            "ts": start,
            "dur": took,
            "args": {name: row[name] for name in told},
        }


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        made = list(events(Path(arguments[0])))
    except InvalidArgument as error:
        print(error, file=sys.stderr)
        return 1
    json.dump({"traceEvents": made, "displayTimeUnit": "ns"}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
