"""`gear check --build`: what this installation is made of, as `horovodrun --check-build` shows it.

Every package is asked itself, so that what is installed and does not work shows as that.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.metadata
import json
import os
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gear
from gear import _core
from gear.cli import probe
from gear.cli.finding import Finding
from gear.cli.network import one_sided

# Package -> its name in the table, and what its absence costs.
PACKAGES = {
    "torch": (
        "PyTorch",
        "batches are NumPy arrays, and gear train does not run: pip install 'gear-replay[torch]'",
    ),
    "horovod": (
        "Horovod",
        "programs written for Horovod do not run; torch.distributed and DeepSpeed need none: "
        "it is part of the site distribution, with horovod = on in the site file",
    ),
    "deepspeed": (
        "DeepSpeed",
        "programs written for DeepSpeed do not run: pip install deepspeed",
    ),
    "mpi4py": (
        "mpi4py",
        "ranks that mpirun starts meet only where MASTER_ADDR is set: pip install mpi4py",
    ),
}
MARKS = {"built": "[X]", "found": "[X]", "missing": "[ ]", "broken": "[!]"}
INFINIBAND = Path("/sys/class/infiniband")

Answers = dict[str, dict[str, Any]]


def run(as_json: bool) -> int:
    """Print it; returns 1 if something that is installed does not work."""
    found = list(findings())
    home = _home()
    if as_json:
        rows = [dataclasses.asdict(finding) for finding in found]
        print(json.dumps({"version": gear.__version__, "home": home, "findings": rows}, indent=2))
    else:
        print(f"GEAR {gear.__version__} in {home}")
        _print_groups(found)
    return 1 if any(finding.status == "broken" for finding in found) else 0


def _print_groups(found: list[Finding]) -> None:
    width = shutil.get_terminal_size().columns
    area = ""
    for row in found:
        if row.area != area:
            print(f"\n{row.area.capitalize()}:")
        area = row.area
        text = f"{MARKS[row.status]} {row.name} {row.detail}".rstrip()
        text += f"  {row.cost}" if row.cost else ""
        print(textwrap.fill(text, width, initial_indent=" " * 4, subsequent_indent=" " * 8))


def findings() -> Iterator[Finding]:
    info = _core.build_info()
    installed = {name: version for name in PACKAGES if (version := _version(name))}
    answers = probe.ask([*installed, *(["mpi_transport"] if info["mpi"] else [])])
    working = {name: answer for name, answer in answers.items() if "error" not in answer}
    yield from frameworks(info, installed, answers)
    yield from controllers(working)
    yield from operations(info, answers, working)


def frameworks(
    info: dict[str, Any], installed: dict[str, str], answers: Answers
) -> Iterator[Finding]:
    core = f"{info['version']}, {info['compiler']}, {info['build_type']}"
    yield Finding("frameworks", "GEAR core", "built", core)
    for package, (name, cost) in PACKAGES.items():
        answer = answers.get(package, {})
        if package not in installed:
            yield Finding("frameworks", name, "missing", "", cost)
        elif "error" in answer:
            broken = f"{installed[package]} does not import"
            why = answer["error"] + _of_a_venv(package)
            yield Finding("frameworks", name, "broken", broken, why)
        else:
            detail = answer["version"]
            if package == "deepspeed":
                operations = ", ".join(answer["operations"]) or "none"
                detail += f", operations built: {operations}"
            yield Finding("frameworks", name, "found", detail)


def controllers(working: Answers) -> Iterator[Finding]:
    """What brings the ranks of a job together."""
    torch, horovod, mpi4py = (working.get(name, {}) for name in ("torch", "horovod", "mpi4py"))
    users = [f"PyTorch ({', '.join(torch['backends'])})" if torch.get("backends") else ""]
    yield _row("controllers", "torch.distributed", users, "torchrun starts nothing")

    users = [f"mpi4py ({mpi4py['library']})" if mpi4py else "", _horovod(horovod, "mpi")]
    yield _row("controllers", "MPI", users, "ranks that mpirun starts meet by MASTER_ADDR only")

    yield _gear_mpi(torch.get("gear_mpi", {}))
    yield _gear_emu(torch.get("gear_emu", {}))

    if horovod.get("gloo"):
        risk = "elastic runs let others run code (CVE-2024-10190): start none"
        yield Finding("controllers", "Gloo of Horovod", "found", "", risk)
    else:
        cost = "no horovodrun --gloo, and no elastic runs (CVE-2024-10190)"
        yield Finding("controllers", "Gloo of Horovod", "missing", "", cost)


def operations(info: dict[str, Any], answers: Answers, working: Answers) -> Iterator[Finding]:
    """What computes on GPUs and moves bytes between ranks."""
    torch, horovod = working.get("torch", {}), working.get("horovod", {})

    core = f"GEAR core ({info['cuda']} for {info['cuda_architectures']})" if info["cuda"] else ""
    others = [f"PyTorch ({torch['cuda']})" if torch.get("cuda") else "", _horovod(horovod, "cuda")]
    cost = "batches are gathered in host memory only: build GEAR where nvcc is"
    yield _row("operations", "CUDA", [core, *others], cost)

    users = [f"PyTorch ({torch['nccl']})" if torch.get("nccl") else "", _horovod(horovod, "nccl")]
    cost = "GPUs exchange through host memory: it comes with a PyTorch for CUDA"
    yield _row("operations", "NCCL", users, cost)

    yield _ibverbs()
    yield from one_sided("operations")

    core = f"GEAR core ({info['mpi']})" if info["mpi"] else ""
    if "error" in answers.get("mpi_transport", {}):
        hint = f"{answers['mpi_transport']['error']}: load the module of that MPI"
        yield Finding("operations", "MPI", "broken", f"of {core} does not load", hint)
    else:
        cost = "ranks on several nodes exchange by gloo or mpi4py: build GEAR where mpicxx is"
        yield _row("operations", "MPI", [core, _horovod(horovod, "mpi")], cost)

    users = ["PyTorch"] if "gloo" in torch.get("backends", []) else [""]
    yield _row("operations", "Gloo", users, "ranks on CPUs exchange by MPI only")


def _gear_mpi(answer: dict[str, str]) -> Finding:
    """The process group of torch.distributed over MPI."""
    if not answer.get("for"):
        remedy = "tools/c10d.sh builds it, and c10d = on in the site file has it in the module"
        cost = f"torch.distributed has no MPI: {remedy}"
        return Finding("controllers", "gear_mpi", "missing", "", cost)
    if "error" in answer:
        why = f"{answer['error']}: load the module of that MPI, or run tools/c10d.sh again"
        return Finding(
            "controllers", "gear_mpi", "broken", f"for {answer['for']} does not load", why
        )
    return Finding("controllers", "gear_mpi", "found", f"for {answer['for']}")


def _gear_emu(answer: dict[str, str]) -> Finding:
    """The process group of `gear emu run`."""
    if not answer.get("for"):
        remedy = "tools/c10d.sh --emulator builds it, and c10d = on in the site file"
        return Finding("controllers", "gear_emu", "missing", "", f"no gear emu run: {remedy}")
    if "error" in answer:
        why = f"{answer['error']}: run tools/c10d.sh --emulator again"
        return Finding(
            "controllers", "gear_emu", "broken", f"for {answer['for']} does not load", why
        )
    return Finding("controllers", "gear_emu", "found", f"for {answer['for']}")


def _horovod(horovod: dict[str, Any], part: str) -> str:
    return "Horovod" if horovod.get(part) else ""


def _row(area: str, name: str, users: list[str], cost: str) -> Finding:
    """Found if the first user has it; `cost` is what follows if it does not."""
    here = ", ".join(filter(None, users))
    if users[0]:
        return Finding(area, name, "found", f"in {here}")
    return Finding(area, name, "missing", f"only in {here}" if here else "", cost)


def _ibverbs() -> Finding:
    cost = "NCCL and MPI go over sockets between nodes"
    try:
        ctypes.CDLL("libibverbs.so.1")
    except OSError:
        remedy = f"{cost}: install rdma-core (Debian: libibverbs1)"
        return Finding("operations", "ibverbs", "missing", "no libibverbs.so.1", remedy)
    devices = ", ".join(sorted(path.name for path in INFINIBAND.glob("*")))
    if not devices:
        return Finding("operations", "ibverbs", "missing", "without an RDMA device", cost)
    return Finding("operations", "ibverbs", "found", f"with {devices}")


def _home() -> str:
    """$GEAR_HOME where this GEAR is the module's, else the folder of the package."""
    package = Path(gear.__file__).resolve().parent
    module = os.environ.get("GEAR_HOME", "")
    return module if module and package.is_relative_to(Path(module).resolve()) else str(package)


def _of_a_venv(package: str) -> str:
    """A sentence where a module is loaded and `package` is none of its own."""
    home = os.environ.get("GEAR_HOME")
    if not home:
        return ""
    place = Path(str(importlib.metadata.distribution(package).locate_file(""))).resolve()
    layers = [Path(home).resolve(), Path(home, "base").resolve()]
    if any(place.is_relative_to(layer) for layer in layers):
        return ""
    return (
        f"; this is not the module's, but that in {place}: there, pip uninstall {package}, or "
        "install a version that works"
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
