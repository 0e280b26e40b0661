"""What rows cannot be faster than: a copy of memory, a port, a network interface."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

RDMA = Path("/sys/class/infiniband")
NETWORK = Path("/sys/class/net")
COPIES = 5


@dataclass(frozen=True)
class Bound:
    """Bytes a second, and of what."""

    of: str
    bytes_per_s: float


def copy(num_bytes: int) -> Bound:
    """One thread copies a block of memory; the best of several times."""
    source, target = np.ones(num_bytes, np.uint8), np.zeros(num_bytes, np.uint8)
    took = []
    for _ in range(COPIES):
        began = time.perf_counter()
        np.copyto(target, source)
        took.append(time.perf_counter() - began)
    return Bound("copy of memory", num_bytes / min(took))


def ports(folder: Path = RDMA) -> Iterator[Bound]:
    """RDMA ports that tell their rate, as "mlx5_0 port 1"."""
    for file in sorted(folder.glob("*/ports/*/rate")):
        rate, unit, *_ = [*_read(file).split(), "", ""]  # "100 Gb/sec (4X EDR)"
        if unit == "Gb/sec":
            device, port = file.parts[-4], file.parts[-2]
            yield Bound(f"{device} port {port}", float(rate) * 1e9 / 8)


def interfaces(folder: Path = NETWORK) -> Iterator[Bound]:
    """Network interfaces that are up and tell their speed."""
    for interface in sorted(folder.glob("*")):
        speed = _read(interface / "speed")  # Mb/s; -1 or an error: not known
        if _read(interface / "operstate") == "up" and speed.isdecimal():
            yield Bound(interface.name, float(speed) * 1e6 / 8)


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return ""
