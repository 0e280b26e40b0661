"""The block that all transformers here are made of."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Attention and two dense layers, each behind a norm and added to its input.

    A kind of block says by `attend` who looks at whom.
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_dense = nn.LayerNorm(width), nn.LayerNorm(width)
        # A key's bias has no gradient but rounding, which Adam would make steps of.
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.joined = nn.Linear(width, width)
        self.dense_in = nn.Linear(width, 4 * width)
        self.dense_out = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    @abstractmethod
    def attend(self, q: Tensor, k: Tensor, v: Tensor, where: Any) -> Tensor:
        """q, k, v: [B, T, heads, size], or as `where` has it; the same shape."""

    def forward(self, x: Tensor, where: Any = None) -> Tensor:
        """x: [B, T, width], or as `where` has it; the same shape."""
        qkv = self.qkv(self.norm_attention(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.unbind(-3)
        seen = self.attend(q, k, v, where).flatten(-2)
        x = x + self.dropout(self.joined(seen))
        dense = self.dense_out(F.gelu(self.dense_in(self.norm_dense(x))))
        found: Tensor = x + self.dropout(dense)
        return found


def initialise(network: nn.Module, blocks: Sequence[Block]) -> None:
    """GPT-2's: normal, and less where a block adds to its input, by the number of additions."""
    for module in network.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    for block in blocks:
        for added in (block.joined, block.dense_out):
            nn.init.normal_(added.weight, std=0.02 / math.sqrt(2 * len(blocks)))


def undecayed(network: nn.Module) -> Iterable[Tensor]:
    """Biases, norms and embeddings: what `weight_decay` must leave alone."""
    for module in network.modules():
        if isinstance(module, (nn.LayerNorm, nn.Embedding)):
            yield from module.parameters()
        elif isinstance(module, (nn.Linear, nn.Conv2d)) and module.bias is not None:
            yield module.bias
