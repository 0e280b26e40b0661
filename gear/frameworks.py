"""Tensors of the consumer's framework in the core's memory, by DLPack, without a copy.

A framework is imported when a loader asks for it, never before.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gear import _core
from gear.errors import InvalidArgument


class TensorMaker(NamedTuple):
    """Makes a framework's tensors of a batch's memory.

    one: of (batch, kind, output). data: the data of all outputs, by number, in less time than one
    after another; None: the framework has no such way.
    """

    one: Callable[[_core.Batch, int, int], Any]
    data: Callable[[_core.Batch], list[Any]] | None = None


FRAMEWORKS = ("numpy", "torch", "jax", "cupy")
ON_GPU = ("torch", "cupy", "jax")  # in the order in which one is chosen


class _Exporter:
    """One tensor of a batch as an object with the DLPack protocol."""

    def __init__(self, batch: _core.Batch, kind: int, output: int) -> None:
        self._tensor = (batch, kind, output)

    def __dlpack__(self, *, stream: int | None = None, **_: object) -> Any:
        batch, kind, output = self._tensor
        return batch.dlpack(kind, output, stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        device = self._tensor[0].device
        return (1, 0) if device < 0 else (2, device)


def _numpy(batch: _core.Batch, kind: int, output: int) -> Any:
    return batch.numpy(kind, output)


def tensor_maker(framework: str | None, device: int = -1) -> TensorMaker:
    """What makes the tensors of a loader.

    Args:
        framework: one of `FRAMEWORKS`; None: torch if installed, else NumPy; on a GPU the first of
            torch, CuPy and JAX that is installed.
        device: GPU that gets the batches; -1: the CPU.

    Raises:
        InvalidArgument: the framework is unknown, not installed, or has no tensors on the device.
    """
    if framework is None:
        allowed = ("torch", "numpy") if device < 0 else ON_GPU
        installed = [name for name in allowed if name == "numpy" or importlib.util.find_spec(name)]
        if not installed:
            raise InvalidArgument(
                f"[loader] device 'cuda:{device}' needs a framework with GPU tensors and none of "
                f"{', '.join(ON_GPU)} is installed: install one"
            )
        framework = installed[0]
    if framework not in FRAMEWORKS:
        raise InvalidArgument(
            f"[loader] framework {framework!r}: {', '.join(FRAMEWORKS)} are allowed"
        )
    if framework == "numpy":
        if device >= 0:
            raise InvalidArgument(
                f"[loader] framework 'numpy' holds arrays in host memory and device "
                f"'cuda:{device}' delivers to a GPU: use {', '.join(ON_GPU)}, or device='cpu'"
            )
        return TensorMaker(_numpy)
    if framework == "cupy" and device < 0:
        raise InvalidArgument(
            "[loader] framework 'cupy' holds tensors on a GPU and this batch is in host memory: "
            "use 'numpy' or 'torch', or device='cuda'"
        )
    if importlib.util.find_spec(framework) is None:
        raise InvalidArgument(
            f"[loader] framework {framework!r} is not installed: install it or use "
            f"{'numpy' if device < 0 else ', '.join(ON_GPU)!r}"
        )
    if framework == "torch":
        return _torch(device)
    if framework == "jax":
        return _jax()
    from_dlpack = importlib.import_module("cupy").from_dlpack
    return TensorMaker(lambda batch, kind, output: from_dlpack(_Exporter(batch, kind, output)))


def _jax() -> TensorMaker:
    """JAX arrays, and ids as NumPy int64: by default JAX would make them int32, and cut off the
    bits that tell a step from a later one in its place."""
    jax = importlib.import_module("jax")
    from_dlpack = importlib.import_module("jax.dlpack").from_dlpack
    # A context manager, of this thread alone; it moved in 0.8.
    with_64_bits = getattr(jax, "enable_x64", None)
    if with_64_bits is None:
        with_64_bits = importlib.import_module("jax.experimental").enable_x64

    def make(batch: _core.Batch, kind: int, output: int) -> Any:
        if kind != _core.Batch.IDS:
            return from_dlpack(_Exporter(batch, kind, output))
        with with_64_bits(True):
            return np.asarray(from_dlpack(_Exporter(batch, kind, output)))

    return TensorMaker(make)


def _torch(device: int) -> TensorMaker:
    """Hands torch a capsule: that takes a third of the time of DLPack's two calls and stream."""
    torch = importlib.import_module("torch")
    # What the public function ends in, given a capsule.
    from_capsule = getattr(torch._C, "_from_dlpack", None) or torch.utils.dlpack.from_dlpack
    if device < 0:
        return TensorMaker(
            lambda batch, kind, output: from_capsule(batch.dlpack(kind, output)),
            lambda batch: [from_capsule(capsule) for capsule in batch.dlpack_all()],
        )
    if not torch.cuda.is_available():
        raise InvalidArgument(
            f"[loader] device 'cuda:{device}' with framework 'torch': torch {torch.__version__} "
            "sees no GPU, and may be a build for CPUs: install one for CUDA, or use device='cpu'"
        )
    torch.cuda.init()
    stream = torch_stream(torch)
    return TensorMaker(
        lambda batch, kind, output: from_capsule(batch.dlpack(kind, output, stream(device)))
    )


def torch_stream(torch: Any) -> Callable[[int], int]:
    """The handle of torch's current stream on a GPU, without making an object for it."""
    cheap = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if cheap is not None:
        return cheap  # type: ignore[no-any-return]
    return lambda device: int(torch.cuda.current_stream(device).cuda_stream)


MAY_BE_OVERWRITTEN = -1


def stream_of(array: Any, device: int) -> int | None:
    """The handle of the stream on which the array's framework works on that GPU at the moment.
    Where it is not known: None of JAX, whose arrays nothing overwrites, else MAY_BE_OVERWRITTEN."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return torch_stream(torch)(device)
    framework = type(array).__module__.partition(".")[0]
    if framework == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(device):
            return int(cupy.cuda.get_current_stream().ptr)
    return None if framework in ("jax", "jaxlib") else MAY_BE_OVERWRITTEN
