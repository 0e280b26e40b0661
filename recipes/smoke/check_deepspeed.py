"""Ranks train with ZeRO-1, and end with the same weights: those of the launcher `deepspeed`, or
over gear_mpi those of `mpirun -n 2 python check_deepspeed.py gear_mpi`.

On GPUs (DS_ACCELERATOR=cuda, one rank or more) by DeepSpeed's fused_adam, where that is compiled; a
warning says so where it is compiled and the ranks are on the CPU.
"""

from __future__ import annotations

import os
import sys

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from deepspeed.git_version_info import installed_ops

if "gear_mpi" in sys.argv:
    import gear_mpi

    gear_mpi.register()
    gear_mpi.set_environment()  # DeepSpeed reads RANK and its like
    deepspeed.init_distributed(dist_backend=gear_mpi.NAME)
else:
    deepspeed.init_distributed()
on_gpu = get_accelerator().device_name() == "cuda"
compiled = installed_ops.get("fused_adam", False)
by_fused_adam = on_gpu and compiled
least = 1 if on_gpu else 2
assert dist.get_world_size() >= least, "deepspeed --num_accelerators 2 check_deepspeed.py starts it"
torch.manual_seed(dist.get_rank())
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
engine, *_ = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    config={
        "train_micro_batch_size_per_gpu": 8,
        # DeepSpeed's own Adam is among the parts that a site chooses to compile.
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": not by_fused_adam}},
        "zero_optimization": {"stage": 1},
    },
)
losses = []
for _ in range(5):
    inputs = torch.randn(8, 4, device=engine.device)
    loss = (engine(inputs)[:, 0] - inputs.sum(1)).square().mean()
    engine.backward(loss)
    engine.step()
    losses.append(loss.item())
weights = torch.cat([p.detach().flatten() for p in engine.module.parameters()])
everyone = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
dist.all_gather(everyone, weights)
assert all(torch.equal(everyone[0], each) for each in everyone), everyone
assert torch.isfinite(weights).all()
if dist.get_rank() == 0:
    print(
        f"DeepSpeed {deepspeed.__version__} on {get_accelerator().device_name()}: "
        f"{dist.get_world_size()} ranks end five ZeRO-1 steps with the same weights"
        f", over {dist.get_backend()}, by {type(engine.optimizer.optimizer).__name__}"
    )
    if compiled and not on_gpu:
        print(
            "warning: DeepSpeed's fused_adam was not tried: these ranks are on the CPU. On a node "
            "with GPUs, run: deepspeed $GEAR_HOME/share/gear/smoke/check_deepspeed.py"
        )
dist.destroy_process_group()
# DeepSpeed keeps torch's groups. A gloo thread of theirs may let go of the last collective's
# tensors while the interpreter ends, and then ends the process by SIGABRT: 1 of 15 launches.
sys.stdout.flush()
if "gear_mpi" not in sys.argv:  # whose processes end MPI
    os._exit(0)
