"""When this process's operations, waits and steps were, and one trace of all real ranks.

A rank leaves a file of the form that gear_mpi logs in (docs/process-group.md), so that one reader
makes traces of both.
"""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from gear.emu.library import is_loaded, load
from gear.emu.start import ranks_of
from gear.emu.steps import spans
from gear.emu.text_file import write_whole
from gear.errors import InvalidArgument

COLUMNS = (
    *("start_us", "duration_us", "bytes", "operation", "dtype", "ranks", "route", "group", "call"),
    "failed",
)
WAITS, STEPS = "of waits", "of steps"  # groups of spans, beside those of ranks, which are numbers


def write(folder: Path, rank: int) -> None:
    """The file of this process, rank `rank` of the world.

    Raises:
        IoError: where it cannot be written.
    """
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(COLUMNS)
    lines.writerows(_rows())
    write_whole(folder / f"rank-{rank}.csv", text.getvalue())


def untraced() -> int:
    """Operations and waits of this process for which its file has no room."""
    return int(load().left_out()) if is_loaded() else 0


def _rows() -> Iterator[tuple[object, ...]]:
    since_1970 = time.time() - time.monotonic()

    def when(begin: float, end: float) -> tuple[float, float]:
        # Such differences are exact: what follows at once begins where the one before ends.
        first, last = (since_1970 + begin) * 1e6, (since_1970 + end) * 1e6
        return first, last - first

    if is_loaded():
        for name, group, ranks, call, size, begin, end in load().operations():
            yield *when(begin, end), size, name, "", ranks, "held", group, call, ""
        for name, begin, end in load().waits():
            yield *when(begin, end), "", name, "", "", "", WAITS, "", ""
    for begin, end in spans():
        yield *when(begin, end), "", "step", "", "", "", STEPS, "", ""


def trace(folder: str | os.PathLike[str]) -> str:
    """Of all real ranks that have left a file in `folder`, for chrome://tracing and
    ui.perfetto.dev: in a row each group's operations, as the model has them on their links, the
    waits of the process's threads, and its steps.

    Raises:
        InvalidArgument: for a folder without such a file, and a file that is none.
        CorruptData, IoError: where the job of the run cannot be read.
    """
    from gear_mpi.trace import events

    _, real = ranks_of(Path(folder))
    try:
        made = [one for one in events(Path(folder)) if one["pid"] in real]
    except ValueError as error:  # gear_mpi's, and of a file of another name
        raise InvalidArgument(
            f"[emu] {folder}: no trace: {error}; real ranks that have made groups leave rank-*.csv"
        ) from None
    return json.dumps({"traceEvents": made, "displayTimeUnit": "ns"})
