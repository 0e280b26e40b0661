"""What every operation of this process took: ``GEAR_MPI_LOG`` and ``GEAR_DEBUG``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gear_mpi.errors import InvalidArgument


def file_of(folder: str | Path, rank: int) -> Path:
    """The log of a rank of the world."""
    return Path(folder, f"rank-{rank}.csv")


def begin(module: Any, rank: int) -> None:
    """Begins the log of this process, rank `rank` of the world, if the environment asks for it.

    Raises:
        InvalidArgument: the folder cannot be made, or GEAR_DEBUG is neither 0 nor 1.
        TransportError: the file cannot be written.
    """
    folder = os.environ.get("GEAR_MPI_LOG") or ""
    prints = os.environ.get("GEAR_DEBUG") or "0"
    if prints not in ("0", "1"):
        raise InvalidArgument(f"[mpi] GEAR_DEBUG={prints!r}: 0 or 1 is allowed")
    if not folder and prints == "0":
        return
    if folder:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidArgument(
                f"[mpi] GEAR_MPI_LOG={folder}: {error}; give a folder that can be written"
            ) from error
    module.begin_log(rank, str(file_of(folder, rank)) if folder else "", prints == "1")
