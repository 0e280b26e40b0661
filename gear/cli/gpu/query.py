"""`gear gpu query`: the GPUs of this machine, and what to tell a compiler about them."""

from __future__ import annotations

import json
from typing import Any

from gear.cli.gpu import nvml


def run(as_json: bool) -> int:
    gpus = nvml.list_gpus()
    for gpu in gpus:
        gpu["gencode"] = _gencode(_architecture(gpu))
    if as_json:
        print(json.dumps(gpus, indent=2))
    elif gpus:
        _print_table(gpus)
    else:
        print("no NVIDIA GPU on this machine (on a cluster, ask inside a job that has GPUs)")
    return 0


def _print_table(gpus: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("GPU", "name", "compute capability", "memory", "NVLink"):
        table.add_column(heading)
    for gpu in gpus:
        capability = "{}.{}".format(*gpu["compute_capability"])
        memory = f"{gpu['memory_bytes'] / 2**30:.1f} GiB"
        table.add_row(str(gpu["index"]), gpu["name"], capability, memory, _nvlink(gpu["nvlink"]))
    Console().print(table)
    architectures = sorted({_architecture(gpu) for gpu in gpus})
    print("for nvcc:", *map(_gencode, architectures))
    print("for a site file: cuda_architectures =", ";".join(map(str, architectures)))


def _nvlink(nvlink: dict[str, Any]) -> str:
    if not nvlink["links"]:
        return "none"
    peers = ", ".join(map(str, nvlink["peers"])) or "no other GPU here"
    return f"{nvlink['up']} of {nvlink['links']} links up, to {peers}"


def _architecture(gpu: dict[str, Any]) -> int:
    major, minor = gpu["compute_capability"]
    return int(10 * major + minor)


def _gencode(architecture: int) -> str:
    return f"-gencode arch=compute_{architecture},code=sm_{architecture}"
