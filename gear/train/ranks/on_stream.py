"""Collectives of NCCL, which the current stream waits for and the host does not."""

from __future__ import annotations

import torch
import torch.distributed as dist


class OnStream:
    """A collective behind which the current stream waits; as watch.Expected.

    work: the collective, where torch gives it out.
    """

    def __init__(self, work: dist.Work | None = None) -> None:
        self._work = work
        self._device = torch.cuda.current_device()
        self._passed = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._passed.record()

    def done(self) -> bool:
        # A thread starts with GPU 0 as its own, and would open a context there.
        with torch.cuda.device(self._device):
            return bool(self._passed.query())  # type: ignore[no-untyped-call]

    def failed(self) -> bool:
        if self._work is None:
            return False  # the time-out tells
        # NCCL's error ends the work, not its kernel.
        with torch.cuda.device(self._device):
            return self._work.is_completed() and not self.done()
