"""RUN_DIR/train.log: what a run has shown, with the time of each line."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console, RenderableType

COLUMNS = 100


class LogFile:
    """Appends; a continued run goes on where the earlier one ended. Every line is there at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._page = Console(file=self._file, width=COLUMNS, color_system=None)

    def write(self, what: RenderableType) -> None:
        """A text gets the time before it, a table stands by itself."""
        if isinstance(what, str):
            stamp = time.strftime("%Y-%m-%d %H:%M:%S")
            self._file.write("".join(f"{stamp} {line}\n" for line in what.splitlines()))
        else:
            self._page.print(what)

    def close(self) -> None:
        self._file.close()
