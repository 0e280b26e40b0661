"""Tensors of the consumer's framework over the core's memory, by DLPack and without a copy.

A framework is imported by name when a loader asks for it, never before.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from gear import _core
from gear.errors import InvalidArgument

MakeTensor = Callable[[_core.Batch, int, int], Any]

FRAMEWORKS = ("numpy", "torch", "jax", "cupy")


class _Exporter:
    """One tensor of a batch as an object with the DLPack protocol."""

    def __init__(self, batch: _core.Batch, kind: int, output: int) -> None:
        self._tensor = (batch, kind, output)

    def __dlpack__(self, **_: object) -> Any:
        batch, kind, output = self._tensor
        return batch.dlpack(kind, output)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def _numpy(batch: _core.Batch, kind: int, output: int) -> Any:
    return batch.numpy(kind, output)


def tensor_maker(framework: str | None) -> MakeTensor:
    """The function that turns (batch, kind, output) into a tensor.

    Args:
        framework: one of `FRAMEWORKS`; None: torch where it is installed, else NumPy.

    Raises:
        InvalidArgument: an unknown framework, or one that is not installed.
    """
    if framework is None:
        framework = "torch" if importlib.util.find_spec("torch") else "numpy"
    if framework not in FRAMEWORKS:
        raise InvalidArgument(
            f"[collect] framework {framework!r}: {', '.join(FRAMEWORKS)} are allowed"
        )
    if framework == "numpy":
        return _numpy
    if framework == "cupy":
        raise InvalidArgument(
            "[collect] framework 'cupy' holds tensors on a GPU and this batch is in host memory: "
            "use 'numpy' or 'torch'"
        )
    if importlib.util.find_spec(framework) is None:
        raise InvalidArgument(
            f"[collect] framework {framework!r} is not installed: install it or use 'numpy'"
        )
    if framework == "torch":
        from_capsule = importlib.import_module("torch.utils.dlpack").from_dlpack
        return lambda batch, kind, output: from_capsule(batch.dlpack(kind, output))
    from_dlpack = importlib.import_module("jax.dlpack").from_dlpack
    return lambda batch, kind, output: from_dlpack(_Exporter(batch, kind, output))
