"""The limits: memcpy of the delivered bytes, and a plain copy of a file of the stored bytes.

Usage: copy_contestant.py memcpy_1_thread | memcpy_all_threads | copy | copy_fsync

memcpy reads the stored experience onward from where the last call ended, so its source is as cold
as a sampler's, and writes one destination that stays warm: in one thread by memmove, or divided
evenly over one thread a core by torch's copy_, for contestants that use several cores.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Callable

import numpy as np
import torch
from protocol import Contestant, Tensors, serve
from workloads import Workload


class Memcpy(Contestant):
    """threads: that copy; 0: one a core."""

    def __init__(self, *, threads: int) -> None:
        self.threads = threads or len(os.sched_getaffinity(0))
        self.name = "memcpy_1_thread" if threads == 1 else "memcpy_all_threads"
        self.setting = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        torch.set_num_threads(self.threads)

    def fill(self) -> None:
        if self.data.is_frames:
            arrays = [self.data.observations]
        else:
            arrays = list(self.data.transitions().values())
        self.source = np.concatenate([array.reshape(-1).view(np.uint8) for array in arrays])

    def _memcpy(self, work: Workload) -> Callable[[], Tensors]:
        size = work.items * work.item_bytes
        source = self.source
        if size > len(source):
            source = np.tile(source, -(-size // len(source)))
        target, limit, at = np.ones(size, np.uint8), len(source) - size, [0]
        start, to, memmove = source.ctypes.data, target.ctypes.data, ctypes.memmove
        from_tensor, to_tensor = torch.from_numpy(source), torch.from_numpy(target)

        def one_thread() -> Tensors:
            memmove(to, start + at[0], size)
            at[0] = at[0] + size if at[0] + size <= limit else 0
            _ = target, source
            return {}

        def all_threads() -> Tensors:
            to_tensor.copy_(from_tensor[at[0] : at[0] + size])
            at[0] = at[0] + size if at[0] + size <= limit else 0
            return {}

        return one_thread if self.threads == 1 else all_threads

    uniform = weighted = prioritised = slices = frames = _memcpy
    insert_single = vector_step = extend = _memcpy


class FileCopy(Contestant):
    """durable: end with fsync, as a checkpoint that survives a power cut must."""

    def __init__(self, *, durable: bool) -> None:
        self.name = "copy_fsync" if durable else "copy"
        self.durable = durable

    def save(self, work: Workload) -> Callable[[], Tensors]:
        origin, target = self.scratch / "origin", self.scratch / "copy"
        rng = np.random.default_rng(3)
        origin.write_bytes(rng.bytes(self.data.num_steps * self.data.step_bytes))

        def call() -> Tensors:
            shutil.copyfile(origin, target)
            if self.durable:
                descriptor = os.open(target, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
            return {}

        return call

    load = save


if __name__ == "__main__":
    chosen = sys.argv[1]
    if chosen.startswith("memcpy"):
        serve(Memcpy(threads=1 if chosen == "memcpy_1_thread" else 0))
    else:
        serve(FileCopy(durable=chosen == "copy_fsync"))
