"""Networks. All take observations as stored, [B, stack, *obs_shape] (uint8 or float32)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LOG_STD_RANGE = (-5.0, 2.0)


class FrameEncoder(nn.Module):
    """Stacks of frames [B, stack, height, width] in 0 ... 255 to features [B, size].

    The convolutions of Mnih et al. 2015 (doi:10.1038/nature14236).
    """

    def __init__(self, stack: int, obs_shape: Sequence[int]) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(stack, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
            *(nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten()),
        )
        self.size: int = self.body(torch.zeros(1, stack, *obs_shape)).shape[1]

    def forward(self, obs: Tensor) -> Tensor:
        features: Tensor = self.body(obs.float() / 255)
        return features


def dense(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers of these sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for size_in, size_out in zip(sizes[:-1], sizes[1:], strict=True):
        layers += [nn.Linear(size_in, size_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class QNetwork(nn.Module):
    """Value of every discrete action, float32 [B, num_actions].

    obs_shape: [stack, *shape of one observation]; `frames`: through a FrameEncoder, else flattened.
    """

    def __init__(
        self, obs_shape: Sequence[int], num_actions: int, hidden: Sequence[int], *, frames: bool
    ) -> None:
        super().__init__()
        self.encoder: nn.Module = nn.Flatten()
        size = math.prod(obs_shape)
        if frames:
            self.encoder = encoder = FrameEncoder(obs_shape[0], obs_shape[1:])
            size = encoder.size
        self.head = dense([size, *hidden, num_actions])

    def forward(self, obs: Tensor) -> Tensor:
        values: Tensor = self.head(self.encoder(obs).float())
        return values

    def greedy(self, obs: Tensor) -> Tensor:
        """The action of greatest value, int64 [B]."""
        return self.forward(obs).argmax(1)


class TwinCritic(nn.Module):
    """Two independent Q(s, a) of the same shape, float32 [2, B].

    Each layer of both is one batched matrix product: half the kernel launches of two networks.
    """

    def __init__(self, obs_size: int, action_dim: int, hidden: Sequence[int]) -> None:
        super().__init__()
        sizes = [obs_size + action_dim, *hidden, 1]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for size_in, size_out in zip(sizes[:-1], sizes[1:], strict=True):
            bound = 1 / math.sqrt(size_in)
            self.weights.append(torch.empty(2, size_in, size_out).uniform_(-bound, bound))
            self.biases.append(torch.empty(2, 1, size_out).uniform_(-bound, bound))

    def forward(self, obs: Tensor, action: Tensor, *, frozen: bool = False) -> Tensor:
        """`frozen`: differentiable in the action, not in the weights."""
        x = torch.cat([obs.flatten(1), action], 1)
        x = x.expand(2, *x.shape)
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if frozen:
                weight, bias = weight.detach(), bias.detach()
            x = torch.baddbmm(bias, x, weight)
            x = x if layer == last else F.relu(x)
        return x.squeeze(2)


class GaussianPolicy(nn.Module):
    """A Gaussian squashed by tanh: actions float32 [B, action_dim] in (-1, 1)."""

    def __init__(self, obs_size: int, action_dim: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.body = dense([obs_size, *hidden, 2 * action_dim])

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """A sampled action and its log density [B], differentiable (reparametrised)."""
        mean, log_std = self._normal(obs)
        noise = torch.randn_like(mean)
        u = mean + noise * log_std.exp()
        # log(1 - tanh(u)^2) without cancellation for large |u|
        squash = 2 * (math.log(2) - u - F.softplus(-2 * u))
        density = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi) - squash
        return torch.tanh(u), density.sum(1)

    def act(self, obs: Tensor) -> Tensor:
        """The sampled action that `forward` gives, alone."""
        mean, log_std = self._normal(obs)
        return torch.tanh(mean + torch.randn_like(mean) * log_std.exp())

    def greedy(self, obs: Tensor) -> Tensor:
        """The action in the middle, without noise."""
        mean, _ = self._normal(obs)
        return torch.tanh(mean)

    def _normal(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the standard deviation before squashing."""
        mean, log_std = self.body(obs.flatten(1).float()).chunk(2, 1)
        return mean, log_std.clamp(*LOG_STD_RANGE)


class Reactive(nn.Module):
    """The action of each step from its observation alone; called as the DecisionTransformer is.

    num_actions: discrete ones; 0 for continuous ones, `action_dim` of them in [-1, 1].
    """

    def __init__(
        self, obs_shape: Sequence[int], num_actions: int, action_dim: int, hidden: Sequence[int]
    ) -> None:
        super().__init__()
        self._obs_dims = len(obs_shape)
        self._discrete = num_actions > 0
        self.body = dense([math.prod(obs_shape), *hidden, num_actions or action_dim])

    def forward(
        self, return_to_go: None, obs: Tensor, action: Tensor, step: Tensor, packed: None = None
    ) -> Tensor:
        """Logits of discrete actions or continuous ones, float32 [..., actions]; of obs alone."""
        flat = obs.flatten(-self._obs_dims) if self._obs_dims else obs.unsqueeze(-1)
        # Frames come as they are, 0 ... 255.
        predicted: Tensor = self.body(flat / 255 if flat.dtype == torch.uint8 else flat.float())
        return predicted if self._discrete else torch.tanh(predicted)

    def undecayed(self) -> Iterable[Tensor]:
        """Biases: what `weight_decay` must leave alone."""
        return (layer.bias for layer in self.body if isinstance(layer, nn.Linear))
