"""The extension `gear_mpi._c10d`, of the torch and the MPI of this process."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from gear_mpi.errors import InvalidArgument
from gear_mpi.extension import FOLDERS, installed_version, libraries, mpi_of

NAME = "gear_mpi._c10d"
# Variables that launchers set -> how the folders of the MPI's libraries begin that they start. The
# last is srun's, for Open MPI.
LAUNCHERS = {"OMPI_COMM_WORLD_RANK": "open-mpi-", "PMI_RANK": "mpich-", "PMIX_RANK": "open-mpi-"}


def candidates() -> list[Path]:
    """The libraries for this torch and Python; first those for the MPI whose launcher started this
    process."""
    named = (prefix for variable, prefix in LAUNCHERS.items() if variable in os.environ)
    wanted = next(named, "")
    found = libraries(str(torch.__version__))
    return sorted(found, key=lambda library: not mpi_of(library).startswith(wanted))


def available() -> bool:
    """Whether there is a library for this torch and Python. It is not loaded."""
    return bool(candidates())


@functools.cache
def load() -> ModuleType:
    """The extension. It brings MPI into the process, and does not initialise it.

    Raises:
        InvalidArgument: there is none for this torch.
        ImportError: it, or the MPI that it was built for, cannot be loaded.
    """
    found = candidates()
    if not found:
        raise InvalidArgument(
            f"[mpi] the backend gear_mpi has not been built for torch {torch.__version__} and "
            f"Python {sysconfig.get_python_version()}: run tools/c10d.sh with an MPI's mpicxx on "
            f"PATH (looked in {', '.join(map(str, FOLDERS))})"
        )
    spec = importlib.util.spec_from_file_location(NAME, found[0])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    own = installed_version()
    if own and module.version != own:
        raise InvalidArgument(
            f"[mpi] {found[0]} belongs to GEAR {module.version}, and this is {own}: "
            "run tools/c10d.sh again"
        )
    sys.modules[NAME] = module
    atexit.register(_end, os.getpid(), module)
    return module


def _end(process: int, module: Any) -> None:
    """Before the interpreter ends. A process that an exception ends does not wait in MPI_Finalize
    for ranks that wait for it: its launcher sees that, and ends them."""
    if os.getpid() != process:
        return  # a forked child has no part in MPI, nor the thread
    if getattr(sys, "last_value", None) is not None:
        module.never_finalise()
    module.stop()
