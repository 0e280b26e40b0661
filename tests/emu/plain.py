"""A program of somebody who has never heard of emulation: `plain.py BACKEND`."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

backend = None if sys.argv[1] == "none" else sys.argv[1]
dist.init_process_group(backend)
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
half = dist.new_group([one for one in range(size) if one % 2 == rank % 2])
for _ in range(5):
    optimiser.zero_grad()
    net(torch.ones(2, 4)).square().mean().backward()
    optimiser.step()
out = torch.ones(1)
dist.all_reduce(out, group=half)
told = {
    "rank": rank,
    "size": size,
    "backend": dist.get_backend(),
    "half": out.item(),
    "local": os.environ["LOCAL_RANK"],
    "custom": os.environ.get("CUSTOMISED", ""),
}
os.write(1, (json.dumps(told) + "\n").encode())  # whole, beside those of other ranks
if sys.argv[2:]:
    os.kill(os.getpid(), 9) if sys.argv[2] == "kill" and rank == 0 else None
    sys.exit(int(sys.argv[2]) if sys.argv[2].isdigit() and rank == 0 else 0)
dist.destroy_process_group()
