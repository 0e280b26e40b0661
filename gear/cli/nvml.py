"""The GPUs of this machine, asked of NVIDIA's management library (libnvidia-ml.so.1).

It comes with the driver, needs neither CUDA nor GEAR's core, and makes no context on a GPU.
CUDA_VISIBLE_DEVICES does not matter to it: these are the GPUs of the machine, job or container.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
PCI_DEVICES = Path("/sys/bus/pci/devices")

# Of nvml.h, whose binary interface is stable.
SUCCESS = 0
DRIVER_NOT_LOADED = 9
OVER_NVLINK = 2  # NVML_P2P_CAPS_INDEX_NVLINK
MAX_LINKS = 64  # more than any GPU has


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Pci(ctypes.Structure):
    _fields_ = [
        ("legacy_bus_id", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "ids", "subsystem_ids")),
        ("bus_id", ctypes.c_char * 32),
    ]


class NvmlError(RuntimeError):
    """There are GPUs, or there may be, and their driver does not answer."""


def list_gpus() -> list[dict[str, Any]]:
    """One dict a GPU, empty where there is none; where the names are those of `gear._core.devices`,
    so are the meanings.

    ``nvlink`` says how many ``links`` a GPU has, how many of them are ``up``, and the indices of
    its ``peers``: the GPUs that it reaches over them, directly or through a switch.

    Raises:
        NvmlError: the driver is broken, or missing although there is a GPU.
    """
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        _refuse_if_on_the_bus(str(error))
        return []
    library.nvmlErrorString.restype = ctypes.c_char_p
    result = library.nvmlInit_v2()
    if result == DRIVER_NOT_LOADED:
        _refuse_if_on_the_bus("the driver is not loaded")
        return []
    _check(library, "nvmlInit_v2", result)
    try:
        count = ctypes.c_uint()
        _call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
        devices = [_device(library, index) for index in range(count.value)]
        return [_describe(library, devices, index) for index in range(count.value)]
    finally:
        library.nvmlShutdown()


def _device(library: ctypes.CDLL, index: int) -> ctypes.c_void_p:
    device = ctypes.c_void_p()
    _call(library, "nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device))
    return device


def _describe(library: ctypes.CDLL, devices: list[ctypes.c_void_p], index: int) -> dict[str, Any]:
    device = devices[index]
    major, minor, memory, pci = ctypes.c_int(), ctypes.c_int(), _Memory(), _Pci()
    capability = (ctypes.byref(major), ctypes.byref(minor))
    _call(library, "nvmlDeviceGetCudaComputeCapability", device, *capability)
    _call(library, "nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
    _call(library, "nvmlDeviceGetPciInfo_v3", device, ctypes.byref(pci))
    links = _links(library, device)
    others = [other for other in range(len(devices)) if other != index]
    return {
        "index": index,
        "name": _text(library, "nvmlDeviceGetName", device),
        "compute_capability": (major.value, minor.value),
        "memory_bytes": memory.total,
        "free_bytes": memory.free,
        "pci_bus_id": f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0",
        "uuid": _text(library, "nvmlDeviceGetUUID", device),
        "nvlink": {
            "links": len(links),
            "up": sum(links),
            "peers": [other for other in others if _linked(library, device, devices[other])],
        },
    }


def _links(library: ctypes.CDLL, device: ctypes.c_void_p) -> list[bool]:
    """Which of its NVLinks are up; none where the GPU, or the driver, knows of no NVLink."""
    found = []
    for link in range(MAX_LINKS):
        active = ctypes.c_int()
        if library.nvmlDeviceGetNvLinkState(device, link, ctypes.byref(active)) != SUCCESS:
            break
        found.append(bool(active.value))
    return found


def _linked(library: ctypes.CDLL, one: ctypes.c_void_p, other: ctypes.c_void_p) -> bool:
    status = ctypes.c_int(-1)
    result = library.nvmlDeviceGetP2PStatus(one, other, OVER_NVLINK, ctypes.byref(status))
    return bool(result == SUCCESS and status.value == 0)


def _text(library: ctypes.CDLL, function: str, device: ctypes.c_void_p) -> str:
    text = ctypes.create_string_buffer(96)
    _call(library, function, device, text, len(text))
    return text.value.decode()


def _call(library: ctypes.CDLL, function: str, *arguments: Any) -> None:
    _check(library, function, getattr(library, function)(*arguments))


def _check(library: ctypes.CDLL, function: str, result: int) -> None:
    if result != SUCCESS:
        raise NvmlError(f"{function} failed: {library.nvmlErrorString(result).decode()}")


def _refuse_if_on_the_bus(problem: str) -> None:
    """Without its driver a GPU still shows on the PCI bus, as a display controller of NVIDIA's."""
    for device in sorted(PCI_DEVICES.glob("*")):
        vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
        if vendor == "0x10de" and kind.startswith("0x03"):
            raise NvmlError(f"an NVIDIA GPU is at PCI address {device.name}, but {problem}")
