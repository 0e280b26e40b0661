"""A model whose gradients may travel in half the bytes: each bucket is above 16 KiB."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from process_group.tests.programs.training import classify


def compression(group: Any) -> list[float]:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(32, 200), nn.ReLU(), nn.Linear(200, 10))
    generator = torch.Generator().manual_seed(dist.get_rank(group))
    batches = [
        (torch.randn(16, 32, generator=generator), torch.randint(10, (16,), generator=generator))
        for _ in range(6)
    ]
    trained = nn.parallel.DistributedDataParallel(model, process_group=group)
    return classify(trained, batches, group)
