"""A real rank of a job whose others are emulated: a sum over all of them."""

from __future__ import annotations

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
assert size >= 16, "start it by: gear emu run -N 512 --real 0,8 -- python check_gear_emu.py"

total = torch.ones(4)
dist.all_reduce(total)
assert torch.equal(total, torch.full((4,), float(size))), total
if rank == 0:
    print(f"gear_emu: {size} ranks agree")
dist.destroy_process_group()
