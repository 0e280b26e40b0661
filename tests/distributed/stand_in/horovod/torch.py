"""The functions of horovod.torch 0.28 that GEAR uses. Calls are matched by name, as there.

What a rank sends is a file in the folder HOROVOD_STAND_IN: it is there for its reader, however late
that comes, whether or not the sender still runs.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

POLL_S = 0.0005


class ProcessSet:
    """All ranks that HOROVOD_RANK and HOROVOD_SIZE tell of."""

    folder: Path | None = None

    def rank(self) -> int:
        return int(os.environ["HOROVOD_RANK"])

    def size(self) -> int:
        return int(os.environ["HOROVOD_SIZE"])

    def path(self, call: str, sender: int, reader: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{call} {sender} {reader}"


class Call(threading.Thread):
    """One all-to-all in the background."""

    def __init__(self, to: list[torch.Tensor], name: str, ranks: ProcessSet) -> None:
        super().__init__(daemon=True)
        self.to, self.call, self.ranks = to, name, ranks
        self.received: list[bytes] = []
        self.start()

    def run(self) -> None:
        me = self.ranks.rank()
        for peer, tensor in enumerate(self.to):
            _write(self.ranks.path(self.call, me, peer), tensor.numpy().tobytes())
        peers = range(self.ranks.size())
        self.received = [_read(self.ranks.path(self.call, peer, me)) for peer in peers]


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(data)
    part.rename(path)


def _read(path: Path) -> bytes:
    """Once it is there, however long that takes: who waits has a time-out of its own."""
    while not path.exists():
        time.sleep(POLL_S)
    data = path.read_bytes()
    path.unlink()
    return data


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
    global_process_set.folder = Path(os.environ["HOROVOD_STAND_IN"])


def is_initialized() -> bool:
    return global_process_set.folder is not None


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


class Compression:
    none = "none"


class _Distributed:
    """What DistributedOptimizer adds to the optimiser that it is made from."""

    def begin(self: Any, p: torch.Tensor) -> None:
        reduced = Reduced(p.grad, self.names[p], lambda parts: parts.mean(0))
        self._handles[p] = (reduced, None)

    def synchronize(self: Any) -> None:
        for p in self.names.keys() - self._handles.keys():
            self.begin(p)
        for handle, _ in self._handles.values():
            handle.finish()
        self._handles.clear()
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
    made._handles, made.names = {}, {p: name for name, p in named_parameters}
    for p in made.names:
        p.register_post_accumulate_grad_hook(made.begin)
    return made


def synchronize(handle: Call) -> Any:
    if isinstance(handle, Reduced):
        return handle.finish()
    data = bytearray(b"".join(handle.received))
    splits = torch.tensor([len(part) for part in handle.received], dtype=torch.int32)
    return torch.frombuffer(data, dtype=torch.uint8) if data else torch.zeros(0).byte(), splits
