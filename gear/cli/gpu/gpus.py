"""What `gear check` says of GPUs: what they are, how they are linked, how fast that is."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gear
from gear import _core
from gear.cli.finding import Finding
from gear.errors import CudaError


@dataclass(frozen=True)
class Gpus:
    """Everything that was found out, in the form of the JSON output.

    Attributes:
        visible: GPUs that the driver shows this process.
        driver, runtime: CUDA versions, ``"13.0"``; None: no driver, no CUDA in this build.
        devices: one dict a GPU, of `gear._core.devices`, with ``bandwidth`` (GB/s of copies,
            when measured) and ``gathers`` (when measured now or before).
        problem: why they could not be listed.
    """

    visible: int
    driver: str | None
    runtime: str | None
    devices: list[dict[str, Any]]
    problem: str = ""


def find_gpus(measure: bool) -> Gpus:
    """Asks the driver; with ``measure``, takes some seconds a GPU to measure its links."""
    with contextlib.redirect_stdout(io.StringIO()):
        visible = gear.check_visible_device()
    versions = (_version(_core.driver_version()), _version(_core.runtime_version()))
    try:
        devices = _core.devices()
        for device in devices:
            if measure:
                device["bandwidth"] = _core.measure_bandwidth(device["index"])
            device["gathers"] = _core.link_speeds(device["index"], measure=measure)
    except CudaError as error:
        return Gpus(visible, *versions, [], str(error))
    return Gpus(visible, *versions, devices)


def gpu_findings(gpus: Gpus) -> Iterator[Finding]:
    yield Finding("machine", "GPUs", *_how_many(gpus))
    if gpus.driver is None:
        yield Finding("machine", "CUDA driver", "missing", "", "no GPU can be used")
    else:
        yield Finding("machine", "CUDA driver", "found", f"CUDA {gpus.driver}")
    if gpus.runtime is not None:
        yield Finding("machine", "CUDA runtime", "built", f"CUDA {gpus.runtime}, inside GEAR")
    for device in gpus.devices:
        yield from _device_findings(device)


def _how_many(gpus: Gpus) -> tuple[str, str, str]:
    if not gpus.visible:
        return ("missing", "none visible", "training runs on the CPU")
    if gpus.problem:
        return ("missing", f"{gpus.visible} visible", gpus.problem)
    cost = "" if gpus.devices else "GEAR was built without CUDA and uses none of them"
    return ("found", f"{gpus.visible} visible", cost)


def _lacks_code(major: int, minor: int) -> bool:
    """Whether the build has code neither for this GPU or an older one of its generation, nor any
    that its driver could translate (PTX, of the last architecture)."""
    built = [int(number) for number in str(_core.build_info()["cuda_architectures"]).split()]
    runs = any(number // 10 == major and number % 10 <= minor for number in built)
    return not runs and bool(built) and built[-1] > 10 * major + minor


def _device_findings(device: dict[str, Any]) -> Iterator[Finding]:
    name = f"GPU {device['index']}"
    major, minor = device["compute_capability"]
    pcie = "PCIe of unknown speed"
    if device["pcie_generation"]:
        pcie = f"PCIe {device['pcie_generation']} x{device['pcie_width']}"
    memory, free = device["memory_bytes"] / 2**30, device["free_bytes"] / 2**30
    detail = f"{device['name']}, compute capability {major}.{minor}, {pcie}"
    if _lacks_code(major, minor):
        cost = "this build has no code for it: add it to GEAR_CUDA_ARCHITECTURES and build again"
        yield Finding("machine", name, "missing", detail, cost)
    else:
        yield Finding("machine", name, "found", f"{detail}, {memory:.1f} GiB ({free:.1f} free)")
    if "bandwidth" in device:
        speed = device["bandwidth"]
        yield Finding(
            "machine",
            f"{name} copies",
            "found",
            f"to the GPU {speed['host_to_device']:.1f} GB/s, back {speed['device_to_host']:.1f}, "
            f"inside {speed['device']:.0f} (read and written)",
        )
    gathers = device["gathers"]
    if gathers is None:
        cost = "path='auto' measures it when the first loader needs it"
        yield Finding("machine", f"{name} gathers", "missing", "not measured: --measure", cost)
        return
    yield Finding(
        "machine",
        f"{name} gathers",
        "found",
        f"zero-copy {gathers['bytes_per_s'] / 1e9:.1f} GB/s, "
        f"{gathers['places_per_s'] / 1e6:.1f} million places/s; "
        f"staged {gathers['staged_bytes_per_s'] / 1e9:.1f} GB/s",
    )


def _version(number: int) -> str | None:
    return f"{number // 1000}.{number % 1000 // 10}" if number else None
