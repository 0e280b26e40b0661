"""A transformer over the cells of grids."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gear.train.models.block import Block, initialise, undecayed


class CellBlock(Block):
    """Every cell looks at all that may be looked at."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, where: Tensor) -> Tensor:
        """where: bool [B, 1, 1, T], the cells that may be looked at."""
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=where).transpose(1, 2)


class PixelTransformer(nn.Module):
    """Colours of the cells of an answer, from pairs of grids that show what is to be done.

    A token is a cell of a pair: its colour in the input and in the output, its row, its column and
    the number of its pair, embedded and added. All tokens see each other (scaled dot-product
    attention), but for cells outside of both grids of a demonstration. The query is the last pair.

    Args:
        num_colours: of inputs and outputs; the answer has `num_answers` of them.
        side: of the canvases; pairs: with the query.
        precision: of the arithmetic, by autocast; weights are what they are.
    """

    def __init__(
        self,
        *,
        num_colours: int,
        num_answers: int,
        outside: int,
        side: int,
        pairs: int,
        width: int,
        layers: int,
        heads: int,
        dropout: float = 0.0,
        precision: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.precision = precision
        self._outside, self._side = outside, side
        self.embed_input = nn.Embedding(num_colours, width)
        self.embed_output = nn.Embedding(num_colours, width)
        self.embed_row, self.embed_column = nn.Embedding(side, width), nn.Embedding(side, width)
        self.embed_pair = nn.Embedding(pairs, width)
        self.dropout = nn.Dropout(dropout)
        blocks = [CellBlock(width, heads, dropout) for _ in range(layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm_out = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_answers)
        initialise(self, blocks)

    def forward(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Logits, float32 [B, S, S, num_answers]; of int64 [B, K, S, S], the query last."""
        mixed = self.precision is not torch.float32
        with torch.autocast(inputs.device.type, self.precision, enabled=mixed):
            return self._logits(inputs, outputs).float()

    def _logits(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        pairs, side = inputs.shape[1], inputs.shape[2]
        place = torch.arange(max(pairs, side), device=inputs.device)
        where = (
            self.embed_row(place[:side])[:, None]
            + self.embed_column(place[:side])
            + self.embed_pair(place[:pairs])[:, None, None]
        )
        tokens = self.embed_input(inputs) + self.embed_output(outputs) + where
        seen = (inputs != self._outside) | (outputs != self._outside)
        x, seen = self.dropout(tokens.flatten(1, 3)), seen.flatten(1)[:, None, None]
        for block in self.blocks:
            x = block(x, seen)
        answer = self.norm_out(x[:, -side * side :])
        logits: Tensor = self.head(answer).unflatten(1, (side, side))
        return logits

    def undecayed(self) -> Iterable[Tensor]:
        """What `weight_decay` must leave alone."""
        return undecayed(self)
