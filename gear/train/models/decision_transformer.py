"""The decision transformer (Chen et al. 2021, arXiv:2106.01345)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gear.train.models.attention import Packed, causal_attention
from gear.train.models.block import Block, initialise, undecayed
from gear.train.models.networks import FrameEncoder


class CausalBlock(Block):
    """Each row looks at itself and at earlier rows of its window."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, where: Packed | None) -> Tensor:
        return causal_attention(q, k, v, where)


class DecisionTransformer(nn.Module):
    """Predicts each action of a window from what was seen up to then.

    A step is three tokens, in this order: the return that is still to come, the observation, the
    action. The action of a step is predicted at its observation's token: from the step's return and
    observation, and from all of the earlier steps of the window.

    Attributes:
        tokens: of a step.

    Args:
        returns: False: there is no token of the return.
        obs_shape: of one observation; frames [height, width], 0 ... 255, go through a FrameEncoder.
        num_actions: discrete ones; 0 for continuous ones.
        action_dim: of continuous actions in [-1, 1].
        max_steps: steps of the longest episode that have a place of their own.
        recompute: gradient checkpointing: the blocks' activations are worked out again in the
            backward pass and not kept.
        precision: of the arithmetic, by autocast; weights are what they are.
    """

    def __init__(
        self,
        *,
        obs_shape: Sequence[int],
        num_actions: int,
        action_dim: int,
        width: int,
        layers: int,
        heads: int,
        max_steps: int,
        returns: bool = True,
        dropout: float = 0.0,
        recompute: bool = False,
        precision: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.recompute = recompute
        self.precision = precision
        self.max_steps = max_steps
        self._obs_dims = len(obs_shape)
        self._discrete = num_actions > 0
        self.frames = FrameEncoder(1, obs_shape) if len(obs_shape) == 2 else None
        obs_size = self.frames.size if self.frames else math.prod(obs_shape)
        self.tokens = 3 if returns else 2
        self.embed_return = nn.Linear(1, width) if returns else None
        self.embed_obs = nn.Linear(obs_size, width)
        self.embed_action: nn.Module = (
            nn.Embedding(num_actions, width) if num_actions else nn.Linear(action_dim, width)
        )
        self.embed_step = nn.Embedding(max_steps, width)
        self.norm_in, self.norm_out = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        blocks = [CausalBlock(width, heads, dropout) for _ in range(layers)]
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(width, num_actions or action_dim)
        initialise(self, blocks)

    def forward(
        self,
        return_to_go: Tensor | None,
        obs: Tensor,
        action: Tensor,
        step: Tensor,
        packed: Packed | None = None,
    ) -> Tensor:
        """Logits of discrete actions or continuous ones, float32 [B, L, actions].

        return_to_go: float [B, L], None without returns; obs: float [B, L, *obs_shape]; action:
        int64 [B, L] or float [B, L, action_dim]; step: int64 [B, L], its number in the episode.
        Windows are at the front of their rows. Packed: [T, ...] in place of [B, L, ...], and
        `packed` counts tokens.
        """
        # Here and not around the call: an engine of DeepSpeed's switches off what is outside.
        mixed = self.precision is not torch.float32
        with torch.autocast(obs.device.type, self.precision, enabled=mixed):
            return self._predicted(return_to_go, obs, action, step, packed).float()

    def _predicted(
        self,
        return_to_go: Tensor | None,
        obs: Tensor,
        action: Tensor,
        step: Tensor,
        packed: Packed | None,
    ) -> Tensor:
        embedded = [self.embed_obs(self._seen(obs)), self.embed_action(action)]
        if self.embed_return is not None:
            assert return_to_go is not None
            embedded.insert(0, self.embed_return(return_to_go.unsqueeze(-1)))
        tokens = torch.stack(embedded, dim=-2)
        tokens = tokens + self.embed_step(step.clamp(max=self.max_steps - 1)).unsqueeze(-2)
        x = self.dropout(self.norm_in(tokens.flatten(-3, -2)))
        for block in self.blocks:
            if self.recompute and self.training:
                x = checkpoint(block, x, packed, use_reentrant=False)
            else:
                x = block(x, packed)
        at_obs = x.unflatten(-2, (-1, self.tokens)).select(-2, -2)
        predicted: Tensor = self.head(self.norm_out(at_obs))
        return predicted if self._discrete else torch.tanh(predicted)

    def undecayed(self) -> Iterable[Tensor]:
        """What `weight_decay` must leave alone."""
        return undecayed(self)

    def _seen(self, obs: Tensor) -> Tensor:
        if self.frames is None:
            return obs.flatten(-self._obs_dims) if self._obs_dims else obs.unsqueeze(-1)
        found: Tensor = self.frames(obs.flatten(0, -3).unsqueeze(1)).unflatten(0, obs.shape[:-2])
        return found
