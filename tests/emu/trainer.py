"""A program of users, `trainer.py WHAT OUT`, that knows of emulation its backend's name alone."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

STEPS = 20


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).double()


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(1000 * step + rank)
    given = torch.randn(32, 8, generator=made, dtype=torch.float64)
    return given, given.sum(1, keepdim=True).sin()


def train(net: nn.Module, source: int) -> list[float]:
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        given, wanted = batch(source, step)
        loss = nn.functional.mse_loss(net(given), wanted)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def ddp() -> dict[str, Any]:
    net = nn.parallel.DistributedDataParallel(model())
    # What an emulated rank holds is its mirror's: rank 2 of 4 that of 0, rank 3 that of 1.
    return {"losses": train(net, dist.get_rank() % 2)}


def fsdp2() -> dict[str, Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    net = model()
    wide = nn.Linear(4 * size, 4 * size).double()
    net = nn.Sequential(nn.Linear(8, 4 * size).double(), wide, nn.Linear(4 * size, 1).double())
    whole = sum(one.numel() for one in net.parameters())
    for layer in net:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    own = sum(one.to_local().numel() for one in net.parameters())  # type: ignore[attr-defined]
    losses = train(net, 0)
    return {"losses": losses, "whole": whole, "own": own, "most": len(list(net.parameters()))}


def fsdp2_once() -> dict[str, Any]:
    """One step, however many ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    size = dist.get_world_size()
    net = nn.Sequential(nn.Linear(8, 4 * size), nn.Tanh(), nn.Linear(4 * size, 1))
    whole = [one.numel() for one in net.parameters()]
    fully_shard(net, mesh=init_device_mesh("cpu", (size,)))
    own = [one.to_local().numel() for one in net.parameters()]  # type: ignore[attr-defined]
    optimiser = torch.optim.AdamW(net.parameters())
    loss = net(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimiser.step()
    return {"loss": loss.item(), "whole": whole, "own": own}


def fsdp2_tp() -> dict[str, Any]:
    """Nodes of eight ranks that split each layer, and nodes that share what is left of it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    size = dist.get_world_size()
    grid = init_device_mesh("cpu", (size // 8, 8), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(8, 1024), nn.Tanh(), nn.Linear(1024, 128))
    net = parallelize_module(net, grid["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(net, mesh=grid["dp"])
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3)
    losses = []
    for step in range(100):
        given, _ = batch(0, step)
        loss = net(given.float()).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return {"losses": losses}


def mesh() -> dict[str, Any]:
    from torch.distributed.device_mesh import init_device_mesh

    size = dist.get_world_size()
    grid = init_device_mesh("cpu", (size // 8, 8), mesh_dim_names=("nodes", "gpus"))
    out = torch.ones(1)
    dist.all_reduce(out, group=grid.get_group("gpus"))
    dist.all_reduce(out, group=grid.get_group("nodes"))
    return {"sum": out.item()}


def objects() -> dict[str, Any]:
    """What programs tell each other beside tensors."""
    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, {"rank": dist.get_rank()})
    one: list[Any] = ["from 0" if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(one, src=0)
    refused = ""
    try:
        dist.broadcast_object_list(one, src=dist.get_world_size() - 1)
    except ValueError as error:
        refused = str(error)
    dist.barrier()
    return {"told": told, "one": one, "refused": refused}


def main() -> None:
    what, out = sys.argv[1:]
    if "GEAR_EMU" in os.environ:
        import gear.emu  # noqa: F401, makes the backend known

        dist.init_process_group("gear_emu")
    else:
        dist.init_process_group("gloo")
    told = globals()[what]()
    told["size"] = dist.get_world_size()
    Path(out, f"{dist.get_rank()}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
