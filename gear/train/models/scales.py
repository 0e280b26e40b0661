"""What brings an offline algorithm's inputs to the size that networks like."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

LEAST_STD = 1e-6  # of an observation that never changes


class Scales(nn.Module):
    """Of the data: kept with the model, since what it learned is in these units."""

    _mean: Tensor
    _std: Tensor
    _return: Tensor
    _target: Tensor

    def __init__(self, obs_shape: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("_mean", torch.zeros(*obs_shape))
        self.register_buffer("_std", torch.ones(*obs_shape))
        self.register_buffer("_return", torch.ones(()))
        self.register_buffer("_target", torch.zeros((), dtype=torch.float64))

    @property
    def target(self) -> float:
        """The return that evaluation asks for, in the environment's unit. Waits for a GPU."""
        return float(self._target)

    def set(self, *, mean: Tensor, std: Tensor, largest_return: float, target: float) -> None:
        """largest_return: the largest absolute return-to-go of the data."""
        self._mean.copy_(mean)
        self._std.copy_(std.clamp(min=LEAST_STD))
        self._return.fill_(largest_return or 1.0)
        self._target.fill_(target)

    def to_go(self, value: Tensor) -> Tensor:
        """Returns-to-go, in -1 ... 1 for those of the data."""
        return value / self._return

    def observation(self, value: Tensor) -> Tensor:
        """Of mean 0 and deviation 1 over the data; frames, which are uint8, as they are."""
        return value if value.dtype == torch.uint8 else (value - self._mean) / self._std
