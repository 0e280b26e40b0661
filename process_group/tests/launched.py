"""One rank that torchrun has started, or nobody: asks for gear_mpi for its first group, or with the
argument "second" for a group beside gloo's, and prints what it is told. With "mpi://", it meets by
MPI."""

from __future__ import annotations

import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import gear_mpi

LONG = timedelta(seconds=300)  # a rank that waits so long is a failed test


def main() -> None:
    try:
        if "second" in sys.argv:
            dist.init_process_group("gloo", timeout=LONG)
            dist.new_group(backend=gear_mpi.NAME, timeout=LONG)
        else:
            method = "mpi://" if "mpi://" in sys.argv else None
            dist.init_process_group(gear_mpi.NAME, method, timeout=LONG)
        total = torch.ones(1)
        dist.all_reduce(total)
        print(f"works: {total.item()} of {dist.get_world_size()}", flush=True)
    except ValueError as error:
        print(str(error).splitlines()[0], flush=True)


if __name__ == "__main__":
    main()
