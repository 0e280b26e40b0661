"""The part of a process group of torch.distributed that gear_mpi carries."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from gear_mpi.errors import InvalidArgument
from gear_mpi.library import load


def group_or_default(group: dist.ProcessGroup | None) -> Any:
    found = group or dist.group.WORLD
    if found is None:
        raise InvalidArgument("[mpi] there is no process group: call init_process_group first")
    return found


def backend_of(group: dist.ProcessGroup | None) -> Any:
    """The `_c10d.Backend` of a group (None: the default one).

    Raises:
        InvalidArgument: there is no group, or gear_mpi does not carry it.
    """
    backend = group_or_default(group)._get_backend(torch.device("cpu"))
    if not isinstance(backend, load().Backend):
        raise InvalidArgument(
            f"[mpi] a group whose tensors of the host go by {backend.name()}: one of gear_mpi is "
            "allowed"
        )
    return backend
