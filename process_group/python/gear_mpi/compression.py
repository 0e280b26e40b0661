"""Sums of float32 that travel as numbers of half the size."""

from __future__ import annotations

import os

import torch.distributed as dist

from gear_mpi.errors import InvalidArgument
from gear_mpi.groups import backend_of
from gear_mpi.library import load

KINDS = {"none": "NONE", "bf16": "BF16", "f16": "F16"}  # as users write them -> _c10d.Compression


def check_compression(kind: str, name: str = "compression") -> str:
    if kind not in KINDS:
        raise InvalidArgument(f"[mpi] {name}={kind!r}: one of {', '.join(KINDS)} is allowed")
    return kind


def default_compression() -> str:
    name = "GEAR_MPI_COMPRESSION"
    return check_compression(os.environ.get("GEAR_MPI_COMPRESSION") or "none", name)


def get_compression(group: dist.ProcessGroup | None = None) -> str:
    """How the sums of a group (None: the default one) travel: ``"none"``, ``"bf16"``, ``"f16"``."""
    own = backend_of(group).compression
    return next(kind for kind, name in KINDS.items() if own == getattr(load().Compression, name))


def set_compression(kind: str, group: dist.ProcessGroup | None = None) -> None:
    """Sets how sums of float32, and of complex64, travel in a group (None: the default one).

    It holds for all_reduce, reduce and reduce_scatter by SUM, AVG and PREMUL_SUM, of more than 16
    KiB (of what a rank receives, for reduce_scatter), that are called from here on. Set the same on
    all ranks, between the same calls. See docs/process-group.md for the error.

    Args:
        kind: ``"none"``, ``"bf16"`` or ``"f16"``.

    Raises:
        InvalidArgument: another `kind`, or a group that gear_mpi does not carry.
    """
    backend_of(group).compression = getattr(load().Compression, KINDS[check_compression(kind)])
