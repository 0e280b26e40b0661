"""The double of a GPU: from `rehearse` on, a group's tensors of the host go as those of a GPU do.
Its extension is beside that of gear_mpi, where tools/c10d.sh builds both."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from types import ModuleType

import torch.distributed as dist

from gear_mpi.groups import backend_of
from gear_mpi.library import load


def rehearse(group: dist.ProcessGroup | None, *, shares_memory: bool) -> None:
    """Collective over the group, as making it."""
    backend_of(group).set_devices(_extension().devices(), shares_memory)


def fail_after(copies: int) -> None:
    """The copy to the host after so many more of this process's fails, as one of a GPU that is
    lost."""
    _extension().fail_after(copies)


@functools.cache
def _extension() -> ModuleType:
    library = Path(str(load().__file__))
    file = library.with_name(library.name.replace("_c10d", "_rehearsal", 1))
    spec = importlib.util.spec_from_file_location("_rehearsal", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
