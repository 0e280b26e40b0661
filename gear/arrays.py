"""Ids and priorities that callers give, as arrays of any framework."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gear import _core
from gear.errors import InvalidArgument
from gear.frameworks import torch_stream


def as_array(values: Any) -> npt.NDArray[Any]:
    """Tensors of any framework and device as a NumPy array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":  # which NumPy lacks
            values = values.float()
    elif type(values).__module__.partition(".")[0] == "cupy":
        values = values.get()
    return np.asarray(values)


def as_ids(values: Any) -> npt.NDArray[np.int64]:
    """Ids as the core takes them."""
    ids = as_array(values)
    if ids.size == 0:
        return np.empty(0, np.int64)
    if ids.dtype.kind not in "iu" or ids.ndim != 1:
        raise InvalidArgument(
            f"[store] ids of dtype {ids.dtype} and shape {ids.shape}: int64 of one dimension is "
            "allowed, as in batch.ids"
        )
    return ids.astype(np.int64, copy=False)


def as_priorities(values: Any) -> npt.NDArray[np.float32]:
    """Priorities as the core takes them."""
    priorities = as_array(values)
    if priorities.dtype.kind not in "fiub":
        raise InvalidArgument(f"[store] priorities of dtype {priorities.dtype}: give real numbers")
    return priorities.astype(np.float32, copy=False)


class GpuArray(NamedTuple):
    """One-dimensional contiguous values on a GPU, and the stream that makes them."""

    address: int
    size: int
    device: int
    stream: int
    owner: Any


def gpu_array(label: str, values: Any, *, integer: bool) -> GpuArray | None:
    """`values` on their GPU as int64 or float32, converted there; None if they are not on one.

    Takes torch tensors and CuPy arrays, whose streams are known: their memory may be reused once
    what reads it is on that stream. Arrays of others go by way of the host.

    Raises:
        InvalidArgument: another kind of number, or another shape than ``[B]``.
    """
    if not _core.runtime_version():
        return None
    if getattr(values, "is_cuda", False) and hasattr(values, "data_ptr"):
        values = values.detach()
        whole = not (values.is_floating_point() or str(values.dtype) == "torch.bool")
        fits = not values.is_complex() and (whole or not integer)
    elif type(values).__module__.partition(".")[0] == "cupy":
        fits = values.dtype.kind in ("iu" if integer else "fiub")
    else:
        return None
    if not fits or values.ndim != 1:
        raise InvalidArgument(
            f"[store] {label} of dtype {values.dtype} and shape {tuple(values.shape)}: "
            f"{'int64' if integer else 'real numbers'} of one dimension are allowed"
        )
    if hasattr(values, "data_ptr"):
        stream = torch_stream(sys.modules["torch"])
        device = int(values.get_device())
        values = (values.long() if integer else values.float()).contiguous()
        return GpuArray(values.data_ptr(), len(values), device, stream(device), values)
    cupy = sys.modules["cupy"]
    device = int(values.device.id)
    with cupy.cuda.Device(device):
        values = cupy.ascontiguousarray(values, "int64" if integer else "float32")
        address = int(values.data.ptr)
        return GpuArray(address, len(values), device, cupy.cuda.get_current_stream().ptr, values)
