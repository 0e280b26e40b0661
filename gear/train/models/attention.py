"""Causal attention over windows, each a row of a padded batch or a stretch of a packed one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

VARLEN_DTYPES = (torch.bfloat16, torch.float16)
AMPERE = (8, 0)


@dataclass(frozen=True)
class Packed:
    """Where the B windows of a packed batch of T rows lie; none is longer than `longest`.

    Attributes:
        cu_seqlens: int32 [B + 1], the row at which each window begins.
        places: int64 [T], each row's place in a batch padded to [B * longest].
    """

    cu_seqlens: Tensor
    places: Tensor
    longest: int

    @staticmethod
    def of(cu_seqlens: Tensor, num_rows: int, longest: int) -> Packed:
        """num_rows: the last of `cu_seqlens`, which is known from the data: no wait for a GPU."""
        begins, ends = cu_seqlens[:-1].long(), cu_seqlens[1:].long()
        windows = torch.arange(len(begins), device=begins.device)
        shift = torch.repeat_interleave(
            windows * longest - begins, ends - begins, output_size=num_rows
        )
        places = torch.arange(num_rows, device=begins.device) + shift
        return Packed(cu_seqlens.int(), places, longest)


def causal_attention(q: Tensor, k: Tensor, v: Tensor, packed: Packed | None) -> Tensor:
    """Each row looks at itself and at earlier rows of its window.

    q, k, v: [B, T, heads, size], windows at the front of their rows; [T, heads, size] if packed.
    Returns the same shape. Padding behind a window changes nothing in it.
    """
    if packed is None:
        return _padded(q, k, v)
    if obstacle_to_varlen(q.device, q.dtype):
        return _by_padding(q, k, v, packed)
    cu, longest = packed.cu_seqlens, packed.longest
    varlen_attn = _varlen_attn()
    assert varlen_attn is not None
    found: Tensor = varlen_attn(q, k, v, cu, cu, longest, longest, **_causal(varlen_attn))
    return found


def obstacle_to_varlen(device: torch.device, dtype: torch.dtype) -> str:
    """Why packed rows cannot go to a kernel that knows `cu_seqlens`; empty if they can.

    They are then padded for the attention alone: all other layers stay packed.
    """
    if device.type != "cuda":
        return f"varlen_attn is for GPUs, and this is {device.type}"
    if dtype not in VARLEN_DTYPES:
        return f"varlen_attn takes bfloat16, and this is {str(dtype).removeprefix('torch.')}"
    if torch.cuda.get_device_capability(device) < AMPERE:
        return "varlen_attn needs a GPU of compute capability 8.0 or more"
    if _varlen_attn() is None:
        return f"torch {torch.__version__} has no varlen_attn, torch 2.10 has"
    return ""


def _varlen_attn() -> Callable[..., Any] | None:
    """Imported where it is called: with it comes torch.compile, which takes as long as torch."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:  # torch before 2.10
        return None
    return varlen_attn


def _padded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def _by_padding(q: Tensor, k: Tensor, v: Tensor, packed: Packed) -> Tensor:
    num_windows, longest = len(packed.cu_seqlens) - 1, packed.longest

    def pad(x: Tensor) -> Tensor:
        whole = x.new_zeros(num_windows * longest, *x.shape[1:]).index_copy(0, packed.places, x)
        return whole.view(num_windows, longest, *x.shape[1:])

    return _padded(pad(q), pad(k), pad(v)).flatten(0, 1).index_select(0, packed.places)


def _causal(varlen_attn: Callable[..., Any]) -> dict[str, Any]:
    """The argument's name changed between two versions of torch."""
    names = inspect.signature(varlen_attn).parameters
    return {"window_size": (-1, 0)} if "window_size" in names else {"is_causal": True}
