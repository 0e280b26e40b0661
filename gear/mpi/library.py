"""The extension `gear._c10d`, of the torch and the MPI of this process."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import torch

import gear
from gear.distributed.extension import FOLDERS, libraries, mpi_of
from gear.errors import InvalidArgument

NAME = "gear._c10d"
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
    if module.version != gear.__version__:
        raise InvalidArgument(
            f"[mpi] {found[0]} belongs to GEAR {module.version}, and this is {gear.__version__}: "
            "run tools/c10d.sh again"
        )
    sys.modules[NAME] = module
    return module
