"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gear.errors import IoError


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Writes `text` beside `path`, and gives it that name then; what stood there stays otherwise.

    Raises:
        IoError: where it cannot be written.
    """
    whole = Path(f"{os.fspath(path)}.saving")
    try:
        whole.write_text(text, encoding="utf-8")
        whole.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            whole.unlink(missing_ok=True)
        raise IoError(error.errno, f"[emu] {path} cannot be written: {error}") from None
