"""`gear check`: what was built, what was found, what is missing and what that costs."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import shutil
from collections.abc import Iterator

import gear
from gear import _core
from gear.cli.finding import COLOURS, Finding
from gear.cli.gpu.gpus import find_gpus, gpu_findings
from gear.cli.network import locked_memory, one_sided
from gear.namesake import ITS_FILE, REMEDY

TRAIN = "pip install 'gear-replay[train]'"

# Distribution, what its absence costs, and how to get it.
OPTIONAL = [
    (
        "torch",
        "batches are NumPy arrays; gear train does not run",
        "pip install 'gear-replay[torch]'",
    ),
    ("jax", "framework='jax' is not available", "pip install jax"),
    ("mpi4py", "ranks that mpirun starts need torch and MASTER_ADDR", "pip install mpi4py"),
    ("hydra-core", "gear train does not run", TRAIN),
    ("gymnasium", "gear train has no environments", TRAIN),
    ("mujoco", "env=hopper and env=halfcheetah do not run", TRAIN),
    ("ale-py", "env=atari does not run", TRAIN),
    ("tensorboard", "logger=tensorboard does not run", TRAIN),
    ("matplotlib", "no learning curve is drawn", TRAIN),
]


def run(as_json: bool, measure: bool = False) -> int:
    gpus = find_gpus(measure)
    findings = [*built(), *machine(), *gpu_findings(gpus), *packages(), *environment()]
    if as_json:
        rows = [dataclasses.asdict(finding) for finding in findings]
        found = {"version": gear.__version__, "findings": rows, "gpus": dataclasses.asdict(gpus)}
        print(json.dumps(found, indent=2))
        return 0
    _print_table(findings)
    return 0


def _print_table(findings: list[Finding]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"gear {gear.__version__}", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("what", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("detail and meaning")
    area = findings[0].area
    for row in findings:
        if row.area != area:
            table.add_section()
        area = row.area
        status = Text(row.status, COLOURS[row.status])
        table.add_row(row.name, status, Text("; ".join(filter(None, [row.detail, row.cost]))))
    Console().print(table)


def built() -> Iterator[Finding]:
    """What this build of the core contains."""
    info = dict(_core.build_info())
    cuda, mpi = info.pop("cuda"), info.pop("mpi")
    del info["verbs"], info["fabric"]  # of the machine's findings
    architectures = info.pop("cuda_architectures")
    core = f"{info.pop('version')}, {info.pop('compiler')}, {info.pop('build_type')}"
    yield Finding("build", "core", "built", core)
    for name, value in info.items():
        yield Finding("build", name.replace("_", " "), "built", str(value))
    if cuda:
        yield Finding("build", "CUDA", "built", f"{cuda} for {architectures}")
    else:
        cost = "no tiers 'pinned' and 'device', batches are gathered in host memory only"
        yield Finding("build", "CUDA", "missing", "not in this build", cost)
    if mpi:
        yield Finding("build", "MPI", "built", str(mpi))
    else:
        cost = "no transport 'mpi': ranks on several nodes exchange by gloo or mpi4py"
        yield Finding("build", "MPI", "missing", "not in this build", cost)


def machine() -> Iterator[Finding]:
    """What this machine offers."""
    yield Finding("machine", "Python", "found", platform.python_version())
    cores = len(os.sched_getaffinity(0))
    yield Finding("machine", "cores", "found", f"{cores} usable by this process")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield Finding("machine", "memory", "found", f"{memory / 2**30:.1f} GiB")
    try:
        free = shutil.disk_usage("/dev/shm").free
        yield Finding(
            "machine", "shared memory", "found", f"{free / 2**30:.1f} GiB free in /dev/shm"
        )
    except OSError:
        yield Finding("machine", "shared memory", "missing", "no /dev/shm", "tier='shared' fails")
    yield locked_memory()
    yield from one_sided("machine")


def packages() -> Iterator[Finding]:
    """What is installed beside GEAR; nothing is imported for it."""
    yield Finding("packages", "numpy", "found", importlib.metadata.version("numpy"))
    other = _other_gear()
    if other is not None:
        cost = "another project with the same import name: only one of the two can be imported"
        yield Finding("packages", "gear", "broken", f"{other} of PyPI: {REMEDY}", cost)
    for name, cost, remedy in OPTIONAL:
        version = _version(name)
        if version is None:
            yield Finding("packages", name, "missing", remedy, cost)
        else:
            yield Finding("packages", name, "found", version)


def environment() -> Iterator[Finding]:
    """The environment variables for operators, and what they are set to."""
    for name, default, meaning in _core.environment():
        value = os.environ.get(name)
        if value:
            yield Finding("environment", name, "set", value, meaning)
        else:
            yield Finding("environment", name, "default", default, meaning)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _other_gear() -> str | None:
    """The version of PyPI's `gear`, wherever on the path it is installed."""
    for found in importlib.metadata.distributions(name="gear"):
        if any(file.name == ITS_FILE for file in found.files or ()):
            return found.version
    return None
