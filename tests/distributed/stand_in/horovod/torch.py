"""What gear.distributed calls of horovod.torch 0.28. Calls are matched by name, as there."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import TCPStore


class ProcessSet:
    """All ranks that HOROVOD_RANK and HOROVOD_SIZE tell of."""

    store: TCPStore | None = None

    def rank(self) -> int:
        return int(os.environ["HOROVOD_RANK"])

    def size(self) -> int:
        return int(os.environ["HOROVOD_SIZE"])


class Call(threading.Thread):
    """One all-to-all in the background."""

    def __init__(self, to: list[torch.Tensor], name: str, ranks: ProcessSet) -> None:
        super().__init__(daemon=True)
        self.to, self.call, self.ranks = to, name, ranks
        self.received: list[bytes] = []
        self.start()

    def run(self) -> None:
        store, me = self.ranks.store, self.ranks.rank()
        for peer, tensor in enumerate(self.to):
            store.set(f"{self.call} {me} {peer}", tensor.numpy().tobytes())
        keys = [f"{self.call} {peer} {me}" for peer in range(self.ranks.size())]
        try:
            store.wait(keys, timedelta(seconds=20))
            self.received = [store.get(key) for key in keys]
        except RuntimeError:
            return


global_process_set = ProcessSet()


def init() -> None:
    if is_initialized():
        return
    address, port = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], "HOROVOD_GLOO_RENDEZVOUS_PORT"
    is_master = global_process_set.rank() == 0
    global_process_set.store = TCPStore(address, int(os.environ[port]), is_master=is_master)


def is_initialized() -> bool:
    return global_process_set.store is not None


def alltoall_async(
    tensor: torch.Tensor, splits: torch.Tensor, name: str, process_set: ProcessSet
) -> Call:
    assert splits.dtype == torch.int32
    assert int(splits.sum()) == len(tensor)
    return Call(list(tensor.split(splits.tolist())), name, process_set)


def poll(handle: Call) -> bool:
    return len(handle.received) == len(handle.to)


def synchronize(handle: Call) -> Any:
    data = bytearray(b"".join(handle.received))
    splits = torch.tensor([len(part) for part in handle.received], dtype=torch.int32)
    return torch.frombuffer(data, dtype=torch.uint8) if data else torch.zeros(0).byte(), splits
