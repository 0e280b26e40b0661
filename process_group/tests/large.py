"""More bytes at once than an int counts, which is how MPI counts them. By hand, as it takes 5 GiB
and a minute:

    mpirun -n 2 python process_group/tests/large.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist

import gear_mpi

LENGTH = (1 << 31) + 4097
STEP = (1 << 20) - 3  # between the elements that are looked at


def main() -> None:
    """There as one message, back as a broadcast, and added up."""
    dist.init_process_group(gear_mpi.NAME)
    marks = torch.arange(LENGTH // STEP + 2).to(torch.uint8)

    def check(wanted: torch.Tensor) -> None:
        assert torch.equal(torch.cat([data[::STEP], data[-1:]]), wanted)

    if dist.get_rank() == 0:
        data = torch.zeros(LENGTH, dtype=torch.uint8)
        data[::STEP], data[-1] = marks[:-1], marks[-1]
        dist.send(data, 1)
        data[::STEP] = data[-1] = 0
    else:
        data = torch.empty(LENGTH, dtype=torch.uint8)
        dist.recv(data, 0)
        check(marks)
    dist.broadcast(data, 1)
    check(marks)
    dist.all_reduce(data)
    check(marks * 2)
    print("moved", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
