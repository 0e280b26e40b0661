"""Where the extension `gear_mpi._c10d` is: one library for each torch and MPI that a site has."""

from __future__ import annotations

import importlib.util
import os
import re
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGE = Path(__file__).parent
# Of the installed package, and of a folder that it is developed in.
FOLDERS = (PACKAGE / "c10d", PACKAGE.parents[2] / "build" / "c10d" / "lib")


def torch_version() -> str:
    """What the installed torch says of itself, as in ``2.13.0+cu130``, without an import: the
    metadata of PyPI's package leave out what follows the ``+``. ``""``: there is no torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    said = Path(spec.origin).with_name("version.py").read_text()
    found = re.search(r"^__version__ = '([^']+)'", said, re.M)
    return found[1] if found else ""


def libraries(torch_version: str) -> list[Path]:
    """Those for that torch and this Python. ``GEAR_C10D`` names a folder to look in before all
    others."""
    own = os.environ.get("GEAR_C10D")
    file = "_c10d" + str(sysconfig.get_config_var("EXT_SUFFIX"))
    return [
        library
        for folder in [*([Path(own)] if own else []), *FOLDERS]
        for library in sorted(folder.glob(f"torch-{torch_version}_*/{file}"))
        if (library.parent / "stamp").exists()
    ]


def mpi_of(library: Path) -> str:
    """The MPI that it was built for, as in ``open-mpi-4.1.4``."""
    return library.parent.name.split("_", 1)[1]


def installed_version() -> str:
    """Of the package that brought this one: GEAR's own, or gear-mpi. ``""``: a copy without one."""
    for name in ("gear-replay", "gear-mpi"):
        try:
            return version(name).split("+")[0]  # what follows tells of CUDA
        except PackageNotFoundError:
            pass
    return ""
