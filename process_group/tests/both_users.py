"""One rank of two, of which 0 gives up and ends while 1 hangs: `both_users.py WHICH`, started by
mpirun. Both users of MPI are in each process, the transport and the process group; WHICH of them,
"transport" or "group", initialises it, and the other one fails. Rank 1 says "passed" if rank 0 has
not waited for it in MPI_Finalize."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import gear_mpi
from gear import TransportError, _core


def main(first: str) -> None:
    if first == "transport":
        transport = _core.mpi_transport(0, 60.0)
    dist.init_process_group(gear_mpi.NAME)
    group = dist.new_group(backend=gear_mpi.NAME, timeout=timedelta(seconds=2))
    if first == "group":
        transport = _core.mpi_transport(0, 2.0)
    dist.barrier()
    if dist.get_rank() == 1:
        limit = time.monotonic() + 30
        while not Path(os.environ["FOLDER"], "ended-0").exists():
            assert time.monotonic() < limit, "rank 0 has not ended"
            time.sleep(0.1)
        print("passed", flush=True)
        os._exit(0)  # MPI_Finalize would wait for rank 0
    try:
        if first == "transport":
            dist.all_reduce(torch.ones(10), group=group)
        else:
            transport.allgather(b"x")
    except (TransportError, dist.DistBackendError):
        sys.exit(3)


if __name__ == "__main__":
    main(sys.argv[1])
