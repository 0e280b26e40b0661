"""A behaviour clone as it plays, for `policy.pt`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from gear.train.models.networks import Reactive
from gear.train.models.scales import Scales


class ClonedPolicy(nn.Module):
    """A Reactive network behind the scales of the data that it has learned from."""

    def __init__(
        self, obs_shape: Sequence[int], num_actions: int, action_dim: int, hidden: Sequence[int]
    ) -> None:
        super().__init__()
        self._discrete = num_actions > 0
        self.scales = Scales(obs_shape)
        self.network = Reactive(obs_shape, num_actions, action_dim, hidden)

    def greedy(self, obs: Tensor) -> Tensor:
        """Of the newest of [B, stack, *obs_shape]: int64 [B], or float32 [B, action_dim]."""
        newest = self.scales.observation(obs[:, -1])
        predicted: Tensor = self.network(None, newest, None, None)
        return predicted.argmax(-1) if self._discrete else predicted
