"""Bytes over Horovod's all-to-all."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from gear.distributed.channels.base import Absence, Channel
from gear.distributed.channels.messages import MessageChannel, Parts
from gear.distributed.timeout import LOOK_S, SLICE_S, Limit

_made = itertools.count()  # groups are made in the same order on all ranks


class HorovodChannel(MessageChannel):
    """Bytes over ``horovod.torch``, which must be initialised.

    Horovod matches calls by name, so that channels with names of their own are independent. It does
    not tell which rank a call waits for: only ranks of this node that have ended are told apart. A
    rank that gives up ends Horovod, when its process ends, for all others.

    Args:
        process_set: the ranks; None: all of Horovod's.
    """

    kind = "horovod"

    def __init__(self, process_set: Any, timeout_s: float) -> None:
        import horovod.torch as hvd

        self._process_set = hvd.global_process_set if process_set is None else process_set
        super().__init__(self._process_set.rank(), self._process_set.size(), timeout_s)
        self._name = f"gear {next(_made)}"

    def _start(self) -> None:
        super()._start()
        self._calls = itertools.count()
        self._duplicates = itertools.count()

    def _move(
        self, to: Parts, from_: Parts, limit: Limit, arrived: Callable[[int], None]
    ) -> Absence:
        import horovod.torch as hvd
        import torch

        sent = bytearray().join(part for parts in to for part in parts)
        lengths = [sum(part.nbytes for part in parts) for parts in to]
        splits = torch.tensor(lengths, dtype=torch.int32)
        # An empty tensor has no memory to look at.
        data = torch.frombuffer(sent, dtype=torch.uint8) if sent else torch.zeros(0).byte()
        others = set(range(self.size)) - {self.rank}
        try:
            handle = hvd.alltoall_async(
                data,
                splits=splits,
                name=f"{self._name}.{next(self._calls)}",
                process_set=self._process_set,
            )
            next_look = time.monotonic() + LOOK_S
            begin = time.monotonic()
            while not hvd.poll(handle):
                now = time.monotonic()
                if now >= limit.end:
                    return Absence(late=tuple(others), some=True)
                self._raise_if_failed()
                if now >= next_look:
                    ended = self.ended(others)
                    if ended:
                        return Absence(ended=tuple(ended))
                    next_look = now + LOOK_S
                if now - begin > 0.001:  # else it would keep the core from a rank that is behind
                    time.sleep(min((now - begin) / 8, SLICE_S))
            output, given = hvd.synchronize(handle)
        except RuntimeError:  # HorovodInternalError: a rank has left
            ended = self.ended(others)
            return Absence(ended=tuple(ended or others), some=not ended)
        received = memoryview(output.numpy()).cast("B") if output.numel() else memoryview(b"")
        for peer, length in enumerate(given.tolist()):
            message, received = received[:length], received[length:]
            for part, view in enumerate(from_[peer]):
                view[:] = message[: view.nbytes].tobytes().ljust(view.nbytes, b"\0")
                message = message[view.nbytes :]
                if part == 0:
                    arrived(peer)
        return Absence()

    def duplicate(self) -> Channel:
        channel = self._twin()
        channel._name = f"{self._name}.channel{next(self._duplicates)}"
        return channel
