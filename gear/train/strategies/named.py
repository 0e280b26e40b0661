"""A model whose forward pass moves tensors between ranks."""

from __future__ import annotations

from typing import Any

from torch import nn

from gear.train.ranks import Ranks


class Named(nn.Module):
    """Calls `module`; if a rank ends meanwhile, the error names it, where torch names a socket."""

    def __init__(self, module: nn.Module, ranks: Ranks) -> None:
        super().__init__()
        self.module = module
        self._ranks = ranks

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with self._ranks.torch_collectives():
            return self.module(*args, **kwargs)
