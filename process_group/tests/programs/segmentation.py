"""Tensors that travel in many pieces, of shapes that pieces do not divide."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


def segmentation(group: Any) -> list[float]:
    """Sums over what arrived, weighted by place: a permutation shows."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    found = []
    for shape in ((100_003,), (7, 53, 211), (size, 33_331)):
        given = torch.randn(shape, generator=torch.Generator().manual_seed(rank)).round(decimals=2)
        total = given.clone()
        dist.all_reduce(total, group=group)
        sent = given.clone()
        dist.broadcast(sent, group_src=size - 1, group=group)
        rows = torch.empty(size * shape[0], *shape[1:])
        dist.all_gather_into_tensor(rows, given, group=group)
        found += [_summed(total), _summed(sent), _summed(rows)]
    parts = torch.arange(size * 40_009, dtype=torch.float32).reshape(size, -1) + rank
    swapped = torch.empty_like(parts)
    dist.all_to_all_single(swapped, parts, group=group)
    share = torch.empty(40_009)
    dist.reduce_scatter_tensor(share, parts.flatten(), group=group)
    return [*found, _summed(swapped), _summed(share)]


def _summed(tensor: torch.Tensor) -> float:
    weights = torch.arange(tensor.numel(), dtype=torch.float64).remainder(1009.0)
    return float(weights @ tensor.flatten().double() / tensor.numel())
