"""A residual network of bottleneck blocks, as ResNet-50 has them, on small made-up pictures."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from process_group.programs.training import averaged, classify


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.skip = nn.Sequential(
            nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.skip(x))


def imagenet(group: Any) -> list[float]:
    torch.manual_seed(7)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        Bottleneck(8, 8, 32, 1), Bottleneck(32, 16, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(64, 20),
    )  # fmt: skip
    generator = torch.Generator().manual_seed(dist.get_rank(group))
    batches = [
        (
            torch.randn(8, 3, 32, 32, generator=generator),
            torch.randint(20, (8,), generator=generator),
        )
        for _ in range(4)
    ]
    return classify(averaged(model, group), batches, group)
