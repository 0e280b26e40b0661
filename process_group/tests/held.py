"""One rank of two: `held.py`, started by mpirun. A thread of rank 0 holds Python's lock, as a call
of C may, until rank 1 has its results, for which it needs rank 0. Writes to FOLDER/held.json, by
case, whether it has got them."""

from __future__ import annotations

import ctypes
import json
import os
import select
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import gear_mpi

FOLDER = Path(os.environ.get("FOLDER", ""))
LIMIT = timedelta(seconds=300)
HELD_MS = 20_000  # at most
COUNT = 8
SIZE = 400_000  # elements: more than a piece

CASES = ["waited for", "called back", "waited for and called back", "dropped"]


class Poll(ctypes.Structure):
    """struct pollfd"""

    _fields_ = (("file", ctypes.c_int), ("events", ctypes.c_short), ("returned", ctypes.c_short))


def hold_until_told(pipe: int) -> bool:
    """Without giving Python's lock away."""
    wanted = Poll(pipe, select.POLLIN, 0)
    return ctypes.PyDLL(None).poll(ctypes.byref(wanted), 1, HELD_MS) == 1


def begin(case: str) -> threading.Thread:
    """Operations, and a thread that waits for them if the case says so."""
    tensors = [torch.ones(SIZE) for _ in range(COUNT)]
    works: list[Any] = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    if "called back" in case:
        for work in works:
            work.get_future().then(lambda done: done.value())

    def wait() -> None:
        for work in works:
            work.wait()
        assert all((tensor == 2).all() for tensor in tensors)

    waiter = threading.Thread(target=wait if "waited for" in case else lambda: None)
    waiter.start()
    return waiter


def main() -> None:
    dist.init_process_group(gear_mpi.NAME, timeout=LIMIT)
    path = FOLDER / "pipe"
    if dist.get_rank() == 0:
        os.mkfifo(path)
    dist.barrier()
    pipe = os.open(path, os.O_RDWR)
    told: dict[str, bool] = {}
    for case in CASES:
        if dist.get_rank() == 0:
            waiter = begin(case)
            dist.send(torch.ones(1), 1)
            told[case] = hold_until_told(pipe)
            os.read(pipe, 1)
            waiter.join()
        else:
            dist.recv(torch.ones(1), 0)
            time.sleep(0.5)  # until all threads of rank 0 are where they wait for the lock
            totals = [torch.ones(SIZE) for _ in range(COUNT)]
            for total in totals:
                dist.all_reduce(total)
            os.write(pipe, b".")
            assert all((total == 2).all() for total in totals)
    if dist.get_rank() == 0:
        (FOLDER / "held.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
