"""The functions of horovod.torch 0.28 that a group uses. Calls are matched by name, as there.

What a rank sends is a file in the folder HOROVOD_STAND_IN: it is there for its reader, however late
that comes, whether or not the sender still runs.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import torch

POLL_S = 0.0005


class ProcessSet:
    """All ranks that HOROVOD_RANK and HOROVOD_SIZE tell of."""

    folder: Path | None = None

    @property
    def ranks(self) -> list[int]:
        return list(range(self.size()))

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


global_process_set = ProcessSet()


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


def synchronize(handle: Call) -> tuple[torch.Tensor, torch.Tensor]:
    data = bytearray(b"".join(handle.received))
    splits = torch.tensor([len(part) for part in handle.received], dtype=torch.int32)
    return torch.frombuffer(data, dtype=torch.uint8) if data else torch.zeros(0).byte(), splits
