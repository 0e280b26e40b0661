"""Every collective once, and a linear model."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from process_group.programs.training import averaged, classify


def generic(group: Any) -> list[float]:
    torch.manual_seed(3)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    mine = torch.arange(6.0) + 10 * rank
    found = [_changed(mine, lambda x: dist.all_reduce(x, group=group))]
    found.append(_changed(mine, lambda x: dist.broadcast(x, group_src=size - 1, group=group)))
    reduced = _changed(mine, lambda x: dist.reduce(x, group_dst=0, group=group))
    found.append(reduced if rank == 0 else mine)
    rows = [torch.empty(6) for _ in range(size)]
    dist.all_gather(rows, mine, group=group)
    found += rows
    dist.gather(mine, rows if rank == 0 else None, group_dst=0, group=group)
    found += rows
    dist.scatter(rows[0], rows if rank == 0 else None, group_src=0, group=group)
    found.append(rows[0])
    parts = torch.arange(2.0 * size) * (rank + 1)
    share = torch.empty(2)
    dist.reduce_scatter_tensor(share, parts, group=group)
    swapped = torch.empty_like(parts)
    dist.all_to_all_single(swapped, parts, group=group)
    found += [share, swapped]
    ahead = torch.empty(6)
    work = dist.irecv(ahead, group_src=(rank - 1) % size, group=group)
    dist.send(mine, group_dst=(rank + 1) % size, group=group)
    assert work is not None
    work.wait()
    found.append(ahead)
    dist.barrier(group)
    model = averaged(torch.nn.Linear(8, 3), group)
    inputs = torch.randn(5, 8)
    labels = torch.randint(3, (5,))
    losses = classify(model, [(inputs + rank, labels)] * 3, group)
    return [value for tensor in found for value in tensor.tolist()] + losses


def _changed(given: Tensor, call: Any) -> Tensor:
    copy = given.clone()
    call(copy)
    return copy
