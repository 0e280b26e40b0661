"""The steps of training that the programs have alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def averaged(model: nn.Module, group: Any) -> DistributedDataParallel:
    """In buckets so small that there are several."""
    return DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.02)


def classify(model: Any, batches: Iterable[tuple[Tensor, Tensor]], group: Any) -> list[float]:
    """The mean loss over the ranks of each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for inputs, labels in batches:
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(mean(loss.detach(), group))
    return losses


def mean(value: Tensor, group: Any) -> float:
    total = value.double()
    dist.all_reduce(total, group=group)
    return float(total / dist.get_world_size(group))
