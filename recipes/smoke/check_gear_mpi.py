"""Ranks of torch.distributed over MPI: collectives, and a model that DDP trains."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gear_mpi.library import candidates

torch.set_num_threads(1)
dist.init_process_group("gear_mpi")
rank, size = dist.get_rank(), dist.get_world_size()
assert size >= 2, "start it with two ranks or more: mpirun -n 2 python check_gear_mpi.py"

given = torch.arange(size, dtype=torch.float64) + rank * size
swapped = torch.empty_like(given)
dist.all_to_all_single(swapped, given)
assert torch.equal(swapped, torch.arange(size, dtype=torch.float64) * size + rank), swapped

torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(4, 2))
model(torch.full((3, 4), float(rank))).sum().backward()
weight = model.module.weight
assert torch.allclose(weight.grad, torch.full((2, 4), 3 * (size - 1) / 2)), weight.grad
if rank == 0:
    print(f"gear_mpi, {candidates()[0].parent.name}: {size} ranks agree")
dist.destroy_process_group()
