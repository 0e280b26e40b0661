"""What NCCL's kernels take of a GPU, by torch's profiler."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gear.emu.calibrate import OPERATIONS, SMALLEST
from gear.emu.models.links import Footprint


def measure_footprints(largest: int) -> tuple[Footprint, ...]:
    """Of six operations, of 1 KiB to `largest` bytes by factors of four; none without GPUs, and
    none of an operation that the copy engines carry.

    All ranks call this together.
    """
    import torch
    import torch.distributed as dist

    if not torch.cuda.is_available():
        return ()
    sizes = [SMALLEST << power for power in range(0, 48, 2) if SMALLEST << power <= largest]
    found: list[Footprint] = []
    for operation, prepare in OPERATIONS.items():
        before = None
        for size in sizes:
            taken = taken_by(prepare(size, dist.get_world_size()))
            if taken is not None and taken != before:
                found.append(Footprint(operation, size if before else 0, *taken))
                before = taken
    return tuple(found)


def taken_by(call: Callable[[], object]) -> tuple[int, int, int] | None:
    """What the last of NCCL's kernels in a call takes: blocks, threads of a block, and bytes of its
    shared memory; None: there was none."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    kernels = [event for event in kernels_of(seen) if "nccl" in event["name"].lower()]
    if not kernels:
        return None
    said = kernels[-1]["args"]
    blocks = said["grid"][0] * said["grid"][1] * said["grid"][2]
    threads = said["block"][0] * said["block"][1] * said["block"][2]
    return int(blocks), int(threads), int(said.get("shared memory", 0))


def kernels_of(seen: Any) -> list[dict[str, Any]]:
    """Those that a torch.profiler.profile has seen, as Chrome's traces have them: name, ts and dur
    in us, args."""
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    return [event for event in events if event.get("cat") == "kernel"]
