"""DistributedDataParallel on a few real ranks of many.

    tools/c10d.sh --emulator                       # once
    python examples/emulation/ddp.py --ranks 512 --steps 20

This process is rank 0 of 512 on nodes of eight GPUs; the others are copies of it. Gradients are
those of 512 ranks with this one's data, and each sum takes what the model of the links says.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn

import gear.emu as emu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--per-node", type=int)
    parser.add_argument("--links", default="hgx-h100")
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()

    emu.install(emu.Job(given.ranks, per_node=given.per_node, links=given.links))
    dist.init_process_group("gear_emu")
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1))
    )
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    batch = torch.randn(64, 256)
    wanted = batch.mean(1, keepdim=True)
    took = []
    for _ in range(given.steps):
        began = time.perf_counter()
        loss = nn.functional.mse_loss(net(batch), wanted)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        took.append(time.perf_counter() - began)
    print(
        f"{dist.get_world_size()} ranks: loss {loss.item():.4f}, median of a step "
        f"{sorted(took)[len(took) // 2] * 1e3:.2f} ms"
    )
    print(emu.report())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
