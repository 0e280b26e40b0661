"""Digits, drawn rather than scanned, shared out by DistributedSampler to a small convolution."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from process_group.programs.training import averaged, classify


def mnist(group: Any) -> list[float]:
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(10, (64,), generator=generator)
    images = torch.randn(64, 1, 28, 28, generator=generator) / 4
    for image, label in zip(images, labels.tolist(), strict=True):
        image[0, 2 * label : 2 * label + 6, 4:24] += 1  # a bar whose height is the digit
    digits = TensorDataset(images, labels)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    sampler: DistributedSampler[Any] = DistributedSampler(digits, size, rank, seed=1)
    torch.manual_seed(6)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * 16, 10),
    )  # fmt: skip
    loader = DataLoader(digits, 32 // size, sampler=sampler)
    losses = []
    trained = averaged(model, group)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        losses += classify(trained, loader, group)
    return losses
