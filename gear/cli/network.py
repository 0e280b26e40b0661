"""What reads rows of other nodes out of their owners' memory, here."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

from gear.cli.finding import Finding
from gear.distributed.channels.transports import ONE_SIDED, one_sided_offer

STATUS = Path("/proc/self/status")
TAKEN = "rows of other nodes come by it where it is the fastest in a group's first exchange"
IPC_LOCK = 14  # bit of the capability to lock any amount of memory


def one_sided(area: str) -> Iterator[Finding]:
    """What ``transport="auto"`` would use: device, port and address, or why nothing."""
    for kind in ONE_SIDED:
        port, lack = one_sided_offer(kind)
        if port:
            yield Finding(area, kind, "found", port, TAKEN)
        else:
            yield Finding(area, kind, "missing", lack, "rows of other nodes come by messages")


def locked_memory() -> Finding:
    """How much this process may lock."""
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit == resource.RLIM_INFINITY or _may_lock_all():
        return Finding("machine", "locked memory", "found", "without limit")
    cost = "buffers beyond it are not pinned for GPUs, nor read by verbs: ulimit -l unlimited"
    return Finding("machine", "locked memory", "missing", f"at most {limit / 2**20:.1f} MiB", cost)


def _may_lock_all() -> bool:
    try:
        lines = STATUS.read_text("ascii", "replace").splitlines()
    except OSError:
        return False
    held = [line.split()[1] for line in lines if line.startswith("CapEff:")]
    return bool(held) and bool(int(held[0], 16) >> IPC_LOCK & 1)
