"""What installed packages say of themselves, each asked in a process of its own.

Importing one takes seconds and may print, or end the process: what the caller gets is its answer,
or the reason why there is none. MPI is not initialised, which is an error on some login nodes.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

TIMEOUT_S = 180  # the first import from a parallel file system

# The child sees the packages that this process sees, and nothing of the working directory.
CHILD = "import sys; sys.path[:] = sys.argv[2:]; from gear.cli.probe import main; main(sys.argv[1])"


def torch() -> dict[str, Any]:
    torch = importlib.import_module("torch")
    distributed = torch.distributed
    known = ("nccl", "gloo", "mpi") if distributed.is_available() else ()
    backends = [name for name in known if getattr(distributed, f"is_{name}_available")()]
    nccl = torch.cuda.nccl.version() if "nccl" in backends else ()
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "backends": backends,
        "nccl": ".".join(map(str, nccl)),
        "gear_mpi": gear_mpi() if distributed.is_available() else {"for": ""},
        "gear_emu": gear_emu() if distributed.is_available() else {"for": ""},
    }


def gear_mpi() -> dict[str, str]:
    """The libraries for the torch of this process, each for an MPI, and why one does not load."""
    library = importlib.import_module("gear_mpi.library")
    found = library.candidates()
    if not found:
        return {"for": ""}
    torch = found[0].parent.name.split("_")[0]
    answer = {"for": f"{torch}, {' and '.join(map(library.mpi_of, found))}"}
    try:
        for other in found[1:]:
            ctypes.CDLL(str(other))  # one of them is all that Python can take as a module
        library.load()
    except (ImportError, OSError, ValueError) as error:
        answer["error"] = f"{type(error).__name__}: {error}"
    return answer


def gear_emu() -> dict[str, str]:
    """The library for the torch of this process, and why it does not load."""
    library = importlib.import_module("gear.emu.library")
    found = library.find()
    if found is None:
        return {"for": ""}
    answer = {"for": found.parent.name.split("_")[0]}
    try:
        library.load()
    except (ImportError, OSError) as error:
        answer["error"] = f"{type(error).__name__}: {error}"
    return answer


def horovod() -> dict[str, Any]:
    horovod = importlib.import_module("horovod.torch")
    return {
        "version": importlib.import_module("horovod").__version__,
        "mpi": bool(horovod.mpi_built()),
        "gloo": bool(horovod.gloo_built()),
        "nccl": bool(horovod.nccl_built()),
        "cuda": bool(horovod.cuda_built()),
    }


def deepspeed() -> dict[str, Any]:
    deepspeed = importlib.import_module("deepspeed")
    built = importlib.import_module("deepspeed.git_version_info").installed_ops
    operations = sorted(name for name, is_built in built.items() if is_built)
    return {"version": deepspeed.__version__, "operations": operations}


def mpi4py() -> dict[str, Any]:
    mpi4py = importlib.import_module("mpi4py")
    mpi4py.rc(initialize=False)
    library = importlib.import_module("mpi4py.MPI").Get_library_version()
    return {"version": mpi4py.__version__, "library": mpi_library(library)}


def mpi_library(said: str) -> str:
    """Maker and version, of what MPI_Get_library_version says: Open MPI a line, MPICH thirty."""
    return " ".join(re.split("[,\n]", said.strip("\0 \n"))[0].split())


def mpi_transport() -> dict[str, Any]:
    """Whether GEAR's library for MPI finds the MPI that it was built with."""
    from gear import _core

    ctypes.CDLL(str(Path(_core.__file__).with_name("libgear_mpi.so")))
    return {}


PROBES: dict[str, Callable[[], dict[str, Any]]] = {
    probe.__name__: probe for probe in (torch, horovod, deepspeed, mpi4py, mpi_transport)
}


def ask(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The answer of each probe, all asked at once; ``{"error": why}`` of one that has none."""
    running = {
        name: subprocess.Popen(
            [sys.executable, "-c", CHILD, name, *sys.path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        for name in names
    }
    return {name: _answer(process) for name, process in running.items()}


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        printed, noise = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"error": f"it did not answer within {TIMEOUT_S} s"}
    if process.returncode == 0:
        answer: dict[str, Any] = json.loads(printed)
        return answer
    if process.returncode < 0:
        return {"error": f"it ended by signal {-process.returncode}"}
    said = noise.strip().splitlines() or [f"it ended with exit code {process.returncode}"]
    return {"error": said[-1]}


def main(name: str) -> None:
    """In the child: prints the answer as JSON. What packages print goes to standard error."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with answer:
        json.dump(PROBES[name](), answer)
