"""The functions of horovod.torch 0.28 that GEAR uses. Calls are matched by name, as there."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


class Reduced(Call):
    """A tensor of every rank, brought to every rank; `combine` makes the result of all."""

    def __init__(self, tensor: torch.Tensor, name: str, combine: Any) -> None:
        self.tensor, self.combine = tensor, combine
        number = numbers[name] = numbers.get(name, 0) + 1
        ranks = global_process_set
        super().__init__([tensor.detach()] * ranks.size(), f"{name} {number}", ranks)

    def finish(self) -> torch.Tensor:
        self.join()
        like = self.tensor.detach()
        parts = [torch.frombuffer(bytearray(b), dtype=like.dtype) for b in self.received]
        like.copy_(self.combine(torch.stack(parts)).view_as(like))
        return self.tensor


numbers: dict[str, int] = {}
global_process_set = ProcessSet()
Sum = "sum"


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


def size() -> int:
    return global_process_set.size()


def allreduce_async_(tensor: torch.Tensor, name: str, op: str) -> Reduced:
    assert op == Sum
    return Reduced(tensor, name, lambda parts: parts.sum(0))


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: str) -> Reduced:
    return Reduced(tensor, name, lambda parts: parts[root_rank])


def broadcast_parameters(params: dict[str, torch.Tensor], root_rank: int) -> None:
    for name, tensor in params.items():
        broadcast_async_(tensor, root_rank, name).finish()


class Compression:
    none = "none"


class _Distributed:
    """What DistributedOptimizer adds to the optimiser that it is made from."""

    def synchronize(self: Any) -> None:
        for name, p in self.named_parameters:  # one at a time: a store waits for one key
            Reduced(p.grad, name, lambda parts: parts.mean(0)).finish()
        self.synchronized = True

    @contextmanager
    def skip_synchronize(self: Any) -> Iterator[None]:
        assert self.synchronized
        yield
        self.synchronized = False


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer, named_parameters: Any, compression: str
) -> torch.optim.Optimizer:
    assert compression == Compression.none
    kind = type(optimizer)
    made = type(kind.__name__, (_Distributed, kind), {})(optimizer.param_groups)
    made.named_parameters = list(named_parameters)
    return made


def synchronize(handle: Call) -> Any:
    if isinstance(handle, Reduced):
        return handle.finish()
    data = bytearray(b"".join(handle.received))
    splits = torch.tensor([len(part) for part in handle.received], dtype=torch.int32)
    return torch.frombuffer(data, dtype=torch.uint8) if data else torch.zeros(0).byte(), splits
