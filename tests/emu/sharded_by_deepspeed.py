"""A program of DeepSpeed's that has never heard of emulation: `sharded_by_deepspeed.py STAGE`."""

import json
import os
import sys

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

stage = int(sys.argv[-1])  # the launcher puts --local_rank before it
config = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": stage},
}
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 1))
engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)
losses = []
for _ in range(5):
    loss = engine(torch.ones(4, 64)).square().mean()
    engine.backward(loss)
    engine.step()
    losses.append(loss.item())
told = {
    "rank": dist.get_rank(),
    "size": dist.get_world_size(),
    "backend": dist.get_backend(),
    "losses": losses,
}
os.write(1, (json.dumps(told) + "\n").encode())  # whole, beside those of other ranks
