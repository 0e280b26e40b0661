"""PyPI's other `gear`, OpenStack's library for Gearman: its package has the same import name.

GEAR's distribution is `gear-replay`. If both are installed into one folder, the later one
overwrites the other's `gear/__init__.py`, and removing either package removes that file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import ModuleType

ITS_FILE = "acl.py"  # no file of GEAR is named so
REMEDY = "pip uninstall gear, then pip install --force-reinstall --no-deps gear-replay"


def mixed_folder(folders: Iterable[str]) -> str | None:
    """The folder of the package that also holds the other package's files, or None."""
    for folder in folders:
        if os.path.exists(os.path.join(folder, ITS_FILE)):
            return folder
    return None


def mixture(folder: str) -> str:
    return (
        f"[import] {folder} holds GEAR (gear-replay) and PyPI's package 'gear', another project, "
        f"and each has written over the other's files: {REMEDY}"
    )


def refuse_other(package: ModuleType) -> None:
    """Raises ImportError if the package that Python imported as `gear` is not GEAR."""
    if not hasattr(package, "ReplayBuffer"):
        raise ImportError(
            f"[import] gear in {package.__file__} is not GEAR but another package of that name, "
            f"PyPI's 'gear': {REMEDY}"
        )
