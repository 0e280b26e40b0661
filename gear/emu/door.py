"""The one door of torch.distributed's groups, through which all of them become gear_emu's."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from types import ModuleType
from typing import Any

from gear.emu.group import create
from gear.emu.meeting import BACKEND, meet_by_job

DOOR = "_new_process_group_helper"
WORDS = ("backend", "backend_options")


def open_door(c10d: ModuleType) -> None:
    """Makes all groups that `c10d`, torch.distributed.distributed_c10d, makes those of the job.

    `get_backend()` answers as if nothing had happened. Of a torch whose door has moved, a warning
    says that a program has to name the backend.
    """
    door = getattr(c10d, DOOR, None)
    if door is None or not set(WORDS) <= set(inspect.signature(door).parameters):
        warnings.warn(
            f"[emu] this torch makes its groups by other ways than torch.distributed's {DOOR}:"
            ' call init_process_group("gear_emu") and new_group(backend="gear_emu") yourself, after'
            " import gear.emu",
            stacklevel=2,
        )
        return
    signature = inspect.signature(door)
    c10d.Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu", "cuda"])
    rendezvous = sys.modules["torch.distributed.rendezvous"]
    meet_by_job(rendezvous._rendezvous_handlers)

    @functools.wraps(door)
    def emulated(*given: Any, **words: Any) -> Any:
        bound = signature.bind(*given, **words)
        asked = bound.arguments["backend"]
        bound.arguments["backend"] = c10d.Backend(BACKEND)
        bound.arguments["backend_options"] = None
        made, store = door(*bound.args, **bound.kwargs)
        if made in c10d._world.pg_map:
            c10d._world.pg_map[made] = (asked, c10d._world.pg_map[made][1])
        return made, store

    setattr(c10d, DOOR, emulated)
