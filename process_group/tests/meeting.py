"""One rank that meets the others in every way there is, one after the other: started by mpirun."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from ports import fresh_port

import gear_mpi

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def check(backend: str, method: str | None = None) -> None:
    dist.init_process_group(backend, init_method=method)
    total = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(total)
    size = dist.get_world_size()
    assert total.item() == size * (size + 1) // 2, total
    port = [fresh_port()]
    dist.broadcast_object_list(port)
    dist.destroy_process_group()
    if "MASTER_PORT" in os.environ:  # a late rank would find the store that rank 0 is closing there
        os.environ["MASTER_PORT"] = str(port[0])


def of_launcher(*names: str) -> str:
    """By Open MPI's name, or MPICH's."""
    return next(os.environ[name] for name in names if name in os.environ)


def main() -> None:
    check("gear_mpi")
    check("gear_mpi")  # the same ranks again
    check("cpu:gear_mpi")
    assert not any(name in os.environ for name in VARIABLES)
    gear_mpi.set_environment()
    assert os.environ["RANK"] == of_launcher("OMPI_COMM_WORLD_RANK", "PMI_RANK")
    assert os.environ["LOCAL_RANK"] == of_launcher("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
    check("gear_mpi")  # as torch does by itself
    check("gloo")
    check("gear_mpi", "mpi://")
    child = os.fork()
    if child == 0:
        sys.exit(0)  # ends as Python does, and touches nothing of its parent's
    assert os.waitpid(child, 0)[1] == 0
    check("gear_mpi", "mpi://")
    print("met")


if __name__ == "__main__":
    main()
