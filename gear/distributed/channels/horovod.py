"""Ranks of Horovod."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from typing import Any

from gear.distributed.channels.framework import FrameworkRanks, done_by
from gear.distributed.timeout import Limit

_made: Counter[tuple[int, ...]] = Counter()  # of these ranks, which make them in one order


class HorovodRanks(FrameworkRanks):
    """Those of ``horovod.torch``, which must be initialised.

    Horovod matches calls by name, and does not tell which rank a call waits for.

    Args:
        process_set: the ranks; None: all of Horovod's.
    """

    name = "Horovod"

    def __init__(self, process_set: Any, timeout_s: float) -> None:
        import horovod.torch as hvd

        self._process_set = hvd.global_process_set if process_set is None else process_set
        super().__init__(self._process_set.rank(), self._process_set.size(), timeout_s)
        ranks = tuple(self._process_set.ranks)
        _made[ranks] += 1
        who = hashlib.sha256(repr(ranks).encode()).hexdigest()[:16]
        self._name = f"gear {who} {_made[ranks]}"
        self._calls = itertools.count()

    def _gather(self, text: bytes, limit: Limit) -> list[bytes]:
        import horovod.torch as hvd
        import torch

        handle = hvd.alltoall_async(
            torch.frombuffer(bytearray(text * self.size), dtype=torch.uint8),
            splits=torch.full((self.size,), len(text), dtype=torch.int32),
            name=f"{self._name}.{next(self._calls)}",
            process_set=self._process_set,
        )
        done_by(limit, lambda: hvd.poll(handle), self.look_for_the_connecting)
        output, lengths = hvd.synchronize(handle)
        ends = itertools.accumulate(lengths.tolist(), initial=0)
        told = output.numpy().tobytes()
        return [told[begin:end] for begin, end in itertools.pairwise(ends)]
