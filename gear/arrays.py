"""Ids and priorities from arrays of any framework."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gear import _core
from gear.errors import InvalidArgument
from gear.frameworks import torch_stream


def as_array(values: Any) -> npt.NDArray[Any]:
    """Tensors of any framework and device as a NumPy array."""
    if hasattr(values, "detach"):
        values = _with_memory(values)
        if str(values.dtype) == "torch.bfloat16":  # which NumPy lacks
            values = values.float()
        array: npt.NDArray[Any] = values.numpy(force=True)  # a microsecond less than np.asarray
        return array
    if type(values).__module__.partition(".")[0] == "cupy":
        values = values.get()
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InvalidArgument(f"[buffer] {type(values).__name__} is no array: {error}") from error


def _with_memory(tensor: Any) -> Any:
    """A tensor of torch that has memory to be read; else InvalidArgument. torch itself reads what
    happens to lie elsewhere."""
    try:
        if tensor.numel() == 0 or tensor.data_ptr() != 0:
            return tensor
    except RuntimeError as error:
        raise InvalidArgument(
            f"[buffer] a tensor of shape {tuple(tensor.shape)} that is not laid out as an array: "
            f"give a dense one ({str(error).splitlines()[0]})"
        ) from error
    if tensor._is_zerotensor():  # zeros that torch only remembers
        torch = sys.modules["torch"]
        return torch.empty_like(tensor, requires_grad=False).copy_(tensor)
    raise InvalidArgument(
        f"[buffer] a tensor of shape {tuple(tensor.shape)} on {tensor.device} without memory: it "
        "was freed, or there never was any; give a tensor that holds its values"
    )


def as_ids(values: Any) -> npt.NDArray[np.int64]:
    """Ids as the core takes them: int64 only. A shorter type has lost the bits that tell a step
    from an evicted one, from an episode and from another rank's step."""
    ids = as_array(values)
    if isinstance(values, (list, tuple)) and len(values) == 0:  # NumPy makes float64 of it
        return np.empty(0, np.int64)
    if ids.dtype != np.int64 or ids.ndim != 1:
        raise _bad_ids(ids.dtype, ids.shape)
    return ids


def _bad_ids(dtype: object, shape: Sequence[int]) -> InvalidArgument:
    return InvalidArgument(
        f"[buffer] ids of dtype {dtype} and shape {tuple(shape)}: int64 of one dimension is "
        "allowed; give batch.ids as they came"
    )


def as_priorities(values: Any) -> npt.NDArray[np.float32]:
    """Priorities as the core takes them, who refuses what is infinite, as float32 or before."""
    priorities = as_array(values)
    if priorities.dtype.kind not in "fiub":
        raise InvalidArgument(f"[buffer] priorities of dtype {priorities.dtype}: give real numbers")
    if priorities.dtype == np.float32:
        return priorities
    with np.errstate(over="ignore"):
        return priorities.astype(np.float32)


class GpuArray(NamedTuple):
    """One-dimensional contiguous values on a GPU, and the stream that makes them."""

    address: int
    size: int
    device: int
    stream: int
    owner: Any


def gpu_array(label: str, values: Any, *, integer: bool) -> GpuArray | None:
    """Ids, or real numbers converted to float32, on their GPU; None if they are not on a GPU.

    Takes torch tensors and CuPy arrays, because their streams are known: their memory may be reused
    once the reading work is on that stream. Arrays of other frameworks go through the host.

    Raises:
        InvalidArgument: ids that are not int64, values that are not real numbers, or another shape
            than ``[B]``.
    """
    if not _core.runtime_version():
        return None
    if getattr(values, "is_cuda", False) and hasattr(values, "data_ptr"):
        values = _with_memory(values.detach().resolve_neg())
        fits = not values.is_complex()
        is_ids = str(values.dtype) == "torch.int64"
    elif type(values).__module__.partition(".")[0] == "cupy":
        fits = values.dtype.kind in "fiub"
        is_ids = values.dtype == np.int64
    else:
        return None
    if integer and not (is_ids and values.ndim == 1):
        raise _bad_ids(values.dtype, values.shape)
    if not fits or values.ndim != 1:
        raise InvalidArgument(
            f"[buffer] {label} of dtype {values.dtype} and shape {tuple(values.shape)}: real "
            "numbers of one dimension are allowed"
        )
    if hasattr(values, "data_ptr"):
        stream = torch_stream(sys.modules["torch"])
        device = int(values.get_device())
        values = (values if integer else values.float()).contiguous()
        return GpuArray(values.data_ptr(), len(values), device, stream(device), values)
    cupy = sys.modules["cupy"]
    device = int(values.device.id)
    with cupy.cuda.Device(device):
        values = cupy.ascontiguousarray(values, "int64" if integer else "float32")
        address = int(values.data.ptr)
        return GpuArray(address, len(values), device, cupy.cuda.get_current_stream().ptr, values)


def set_priorities(to: _core.Shard | _core.Peers, ids: Any, priorities: Any) -> int | None:
    """Gives `to` the priorities of steps. Returns what its ``update`` does; None for arrays on one
    GPU.

    Raises:
        InvalidArgument: ids that are not int64, priorities that are not real numbers, another shape
            than ``[B]``, or different numbers of them; and as `to` does.
    """
    torch = sys.modules.get("torch")
    if torch is not None and _need_no_conversion(torch, ids, priorities):
        places, count = (ids.data_ptr(), priorities.data_ptr()), ids.numel()
        readable = count == 0 or all(places)
        if ids.is_cpu and readable:
            return to.update_at(*places, count)
        if ids.is_cuda and readable and _core.runtime_version():
            if count > 0:
                to.update_from_device(*places, count, torch_stream(torch)(ids.get_device()))
            return None
    gpu_ids = gpu_array("ids", ids, integer=True)
    gpu_priorities = gpu_ids and gpu_array("priorities", priorities, integer=False)
    if not gpu_ids or not gpu_priorities or gpu_ids.device != gpu_priorities.device:
        return to.update(as_ids(ids), as_priorities(priorities))
    if gpu_ids.size != gpu_priorities.size:
        raise InvalidArgument(
            f"[buffer] update takes one priority an id; given {gpu_ids.size} ids and "
            f"{gpu_priorities.size} priorities"
        )
    if gpu_ids.size > 0:
        to.update_from_device(gpu_ids.address, gpu_priorities.address, gpu_ids.size, gpu_ids.stream)
    return None


def _need_no_conversion(torch: Any, ids: Any, priorities: Any) -> bool:
    """Whether these are torch tensors in one memory that the core can read as they are: what nearly
    everybody gives, and some microseconds cheaper to find out than by conversion."""
    tensor = torch.Tensor
    return (
        type(ids) is tensor
        and type(priorities) is tensor
        and ids.dtype is torch.int64
        and priorities.dtype is torch.float32
        and ids.dim() == 1
        and ids.shape == priorities.shape
        and ids.is_contiguous()
        and priorities.is_contiguous()
        and not (ids.is_neg() or priorities.is_neg())
        and (
            (ids.is_cpu and priorities.is_cpu)
            or (ids.is_cuda and priorities.is_cuda and ids.get_device() == priorities.get_device())
        )
    )
