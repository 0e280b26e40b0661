"""Ranks of Horovod add up a tensor and train alike: on GPUs if each rank has one, else on the CPU.

A warning says so where Horovod is built for GPUs (NCCL) and is tried on the CPU.
"""

from __future__ import annotations

import horovod.torch as hvd
import torch

hvd.init()
assert hvd.size() >= 2, "start it with two ranks or more: mpirun -n 2 python check_horovod.py"
# All on GPUs or all on the CPU: Horovod refuses a mixture.
gpus = torch.cuda.device_count()
on_gpu = hvd.nccl_built() and gpus >= hvd.local_size()
device = torch.device("cuda", hvd.local_rank()) if on_gpu else torch.device("cpu")

total = hvd.allreduce(torch.full((1000,), hvd.rank() + 1.0, device=device), op=hvd.Sum)
expected = hvd.size() * (hvd.size() + 1) / 2
assert torch.equal(total.cpu(), torch.full((1000,), expected)), total

torch.manual_seed(hvd.rank())
model = torch.nn.Linear(4, 1).to(device)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4, device=device)).square().mean().backward()
    optimizer.step()
weights = hvd.allgather(model.weight.detach())
assert all(torch.equal(weights[0], row) for row in weights), weights
if hvd.rank() == 0:
    print(f"Horovod on {device}: {hvd.size()} ranks agree on {expected:g} and on a trained model")
    if hvd.nccl_built() and not on_gpu:
        print(
            f"warning: Horovod's NCCL was not tried: this node has {gpus} GPU(s) for "
            f"{hvd.local_size()} ranks. On one with a GPU for each rank, run: "
            f"mpirun -n {hvd.size()} python $GEAR_HOME/share/gear/smoke/check_horovod.py"
        )
hvd.shutdown()
