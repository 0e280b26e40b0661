"""The GPUs of this machine and what runs on them, asked of NVIDIA's management library.

It comes with the driver, needs neither CUDA nor GEAR's core, and makes no context on a GPU.
CUDA_VISIBLE_DEVICES does not matter to it: these are the GPUs of the machine, job or container.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gear.errors import CudaError, InvalidArgument

try:
    import pynvml
except ModuleNotFoundError as error:
    raise InvalidArgument(
        "[gpu] nvidia-ml-py is not installed: the commands for GPUs need the extra [cli]: "
        "pip install 'gear-replay[cli]'"
    ) from error

PCI_DEVICES = Path("/sys/bus/pci/devices")
MAX_LINKS = 64  # more than any GPU has


def list_gpus() -> list[dict[str, Any]]:
    """One dict a GPU, empty where there is none; where the names are those of `gear._core.devices`,
    so are the meanings.

    ``nvlink`` says how many ``links`` a GPU has, how many of them are ``up``, and the indices of
    its ``peers``: the GPUs that it reaches over them, directly or through a switch.

    Raises:
        CudaError: the driver is broken, or missing although there is a GPU.
    """
    with _devices() as devices:
        return [_describe(devices, index) for index in range(len(devices))]


def list_processes() -> list[dict[str, Any]]:
    """One dict for each process on each GPU, by GPU and process number.

    ``memory_bytes`` is what it has of the GPU's memory, None where the driver does not tell;
    ``utilisation`` the share of time, in percent, in which a kernel of it ran, lately; None if it
    ran none or the GPU does not tell.

    Raises:
        CudaError: as `list_gpus`.
    """
    with _devices() as devices:
        return [found for index, one in enumerate(devices) for found in _processes(index, one)]


@contextlib.contextmanager
def _devices() -> Iterator[list[Any]]:
    """The library's handles of all GPUs; none where there is neither a GPU nor a driver."""
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded) as error:
        _refuse_if_on_the_bus(error)
        yield []
        return
    except pynvml.NVMLError as error:
        raise _no_answer(str(error)) from error
    try:
        yield [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
    except pynvml.NVMLError as error:
        raise _no_answer(str(error)) from error
    finally:
        pynvml.nvmlShutdown()


def _describe(devices: list[Any], index: int) -> dict[str, Any]:
    device = devices[index]
    memory, pci = pynvml.nvmlDeviceGetMemoryInfo(device), pynvml.nvmlDeviceGetPciInfo(device)
    links = _links(device)
    others = [other for other in range(len(devices)) if other != index]
    return {
        "index": index,
        "name": pynvml.nvmlDeviceGetName(device),
        "compute_capability": tuple(pynvml.nvmlDeviceGetCudaComputeCapability(device)),
        "memory_bytes": memory.total,
        "free_bytes": memory.free,
        "pci_bus_id": f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0",
        "uuid": pynvml.nvmlDeviceGetUUID(device),
        "nvlink": {
            "links": len(links),
            "up": sum(links),
            "peers": [other for other in others if _linked(device, devices[other])],
        },
    }


def _links(device: Any) -> list[bool]:
    """Which of its NVLinks are up; none where the GPU, or the driver, knows of no NVLink."""
    found = []
    with contextlib.suppress(pynvml.NVMLError):
        for link in range(MAX_LINKS):
            found.append(bool(pynvml.nvmlDeviceGetNvLinkState(device, link)))
    return found


def _linked(one: Any, other: Any) -> bool:
    with contextlib.suppress(pynvml.NVMLError):
        over_nvlink = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        status = pynvml.nvmlDeviceGetP2PStatus(one, other, over_nvlink)
        return bool(status == pynvml.NVML_P2P_STATUS_OK)
    return False


def _processes(index: int, device: Any) -> list[dict[str, Any]]:
    asked: tuple[Callable[[Any], list[Any]], ...] = (
        pynvml.nvmlDeviceGetComputeRunningProcesses,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses,
    )
    memory: dict[int, int | None] = {}
    for ask in asked:
        with contextlib.suppress(pynvml.NVMLError_NotSupported):
            memory.update({each.pid: each.usedGpuMemory for each in ask(device)})
    shares = _shares(device)
    return [
        {"gpu": index, "pid": pid, "memory_bytes": memory[pid], "utilisation": shares.get(pid)}
        for pid in sorted(memory)
    ]


def _shares(device: Any) -> dict[int, int]:
    """Percent of each process over the last second. Asked since time 0, the driver tells a mean of
    all samples that it keeps."""
    since_us = time.time_ns() // 1000 - 1_000_000
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(device, since_us)
    except pynvml.NVMLError:  # without samples it is one of several errors, success among them
        return {}
    return {each.pid: each.smUtil for each in sorted(samples, key=lambda each: each.timeStamp)}


def _refuse_if_on_the_bus(problem: Exception) -> None:
    """Without its driver a GPU still shows on the PCI bus, as a display controller of NVIDIA's."""
    for device in sorted(PCI_DEVICES.glob("*")):
        vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
        if vendor == "0x10de" and kind.startswith("0x03"):
            raise _no_answer(f"an NVIDIA GPU is at PCI address {device.name}, but: {problem}")


def _no_answer(why: str) -> CudaError:
    return CudaError(
        f"[gpu] the driver does not answer: {why}: nvidia-smi must work first; containers "
        "need the driver's libraries too (--gpus all, --nv)"
    )
