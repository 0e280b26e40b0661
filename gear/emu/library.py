"""The extension `gear.emu._emu`, of the torch of this process."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from gear.errors import InvalidArgument

NAME = "gear.emu._emu"
FORM = 3  # of what Python asks it


def find() -> Path | None:
    """Where the library for this torch and Python is, looked for in the folder of ``GEAR_C10D``
    first; None: there is none."""
    import torch

    from gear_mpi.extension import FOLDERS

    own = os.environ.get("GEAR_C10D")
    file = f"torch-{torch.__version__}_none*/_emu{sysconfig.get_config_var('EXT_SUFFIX')}"
    found = (
        library
        for folder in ([Path(own)] if own else []) + list(FOLDERS)
        for library in sorted(folder.glob(file))
        if library.with_name("stamp").exists()
    )
    return next(found, None)


@functools.cache
def load() -> ModuleType:
    """The library for this torch and Python.

    Raises:
        InvalidArgument: there is none, or one of another version of GEAR.
    """
    import torch

    path = find()
    if path is None:
        raise InvalidArgument(
            f"[emu] there is no library of gear_emu for torch {torch.__version__}: build it, by"
            " tools/c10d.sh --emulator in GEAR's sources, with this Python"
        )
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if getattr(module, "form", 1) != FORM:
        raise InvalidArgument(
            f"[emu] the library {path} is of another version of GEAR: build it anew, by"
            " tools/c10d.sh --emulator in GEAR's sources, with this Python"
        )
    sys.modules[NAME] = module
    return module


def is_loaded() -> bool:
    """Whether this process has it: it makes no emulated group before."""
    return NAME in sys.modules


def tallies() -> dict[str, dict[str, Any]]:
    """What the operations of this process have come to, by name; none before its first group."""
    return dict(load().tallies()) if is_loaded() else {}
