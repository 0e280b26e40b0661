"""The limits: memcpy of the delivered bytes, and a plain copy of a file of the stored bytes.

Usage: copy_contestant.py memcpy | copy | copy_fsync

memcpy reads the stored experience onward from where the last call ended, so its source is as cold
as a sampler's, and writes one destination that stays warm. One thread.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Callable

import numpy as np
from protocol import Contestant, Tensors, serve
from workloads import Workload


class Memcpy(Contestant):
    name = "memcpy"

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
        target = np.ones(size, np.uint8)
        start, limit, to = source.ctypes.data, len(source) - size, target.ctypes.data
        memmove, at = ctypes.memmove, [0]

        def call() -> Tensors:
            memmove(to, start + at[0], size)
            at[0] = at[0] + size if at[0] + size <= limit else 0
            _ = target, source
            return {}

        return call

    uniform = weighted = prioritised = slices = frames = _memcpy
    insert_single = insert_batch = _memcpy


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
    serve(Memcpy() if chosen == "memcpy" else FileCopy(durable=chosen == "copy_fsync"))
