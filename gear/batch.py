"""One delivered batch."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from typing import Any

from gear import _core
from gear.frameworks import TensorMaker
from gear.in_process import InProcess

DATA = _core.Batch.DATA


class Batch(InProcess, Mapping[str, Any]):
    """The tensors of a batch of B items, by output name, with ids, weights, masks and lengths.

    A batch is a mapping: ``len(batch)`` is the number of outputs, `size` the number of items.

    With B items and L steps in the output's window, ``batch[name]`` has shape ``[B, L, *shape]``;
    ``[B, *shape]`` for a `Step`; ``[sum(lengths[name]), *shape]`` when packed.

    GEAR makes a tensor when you first ask for it (torch on the CPU: those of all outputs), and
    reuses the batch's memory only after the last tensor is gone: keep a batch as long as you like.
    On a GPU, the stream that is current when you
    first ask waits for the batch, and the memory is reused after the work that this stream has by
    the time the last tensor goes. If another stream uses a tensor, wait for it before that.
    """

    __slots__ = ("_core", "_data", "_make", "_outputs", "_tensors")
    _instead = "give its tensors, as in dict(batch), batch.ids and batch.weights"

    def __init__(self, core: _core.Batch, outputs: Mapping[str, int], make: TensorMaker) -> None:
        self._core = core
        self._outputs = outputs
        self._make = make
        self._data: dict[str, Any] = {}
        self._tensors: dict[int, Any] = {}  # what is no output's data, by kind and output

    def _tensor(self, kind: int, output: int = 0) -> Any:
        key = kind << 16 | output
        tensor = self._tensors.get(key)
        if tensor is None:
            tensor = self._tensors[key] = self._make.one(self._core, kind, output)
        return tensor

    def __getitem__(self, name: str) -> Any:
        try:
            return self._data[name]
        except KeyError:
            output = self._outputs[name]
        if self._make.data is not None:
            return self._all()[name]
        tensor = self._data[name] = self._make.one(self._core, DATA, output)
        return tensor

    def _all(self) -> dict[str, Any]:
        """The tensors of all outputs."""
        data, outputs, make = self._data, self._outputs, self._make
        if len(data) < len(outputs):
            if make.data is not None:
                tensors = make.data(self._core)
                for name, output in outputs.items():
                    data[name] = tensors[output]
            else:
                self._data = data = {name: self[name] for name in outputs}
        return data

    def values(self) -> ValuesView[Any]:
        """The tensors, in the order of the outputs."""
        return self._all().values()

    def items(self) -> ItemsView[str, Any]:
        """Names and tensors, in the order of the outputs."""
        return self._all().items()

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    @property
    def size(self) -> int:
        """Number of items, B."""
        return self._core.items

    @property
    def nbytes(self) -> int:
        """Bytes read from the store for this batch. Where a GPU gathers, padding counts."""
        return self._core.bytes

    @property
    def path(self) -> str:
        """The way of the bytes: ``"host"``, ``"staged"``, ``"zero_copy"`` or ``"device"``."""
        return self._core.path

    @property
    def ids(self) -> Any:
        """int64 ``[B]``, for `ReplayBuffer.update` and `ReplayBuffer.collect`. With JAX: NumPy."""
        return self._tensor(_core.Batch.IDS)

    @property
    def probabilities(self) -> Any:
        """float32 ``[B]``: the probability with which each item was drawn."""
        return self._tensor(_core.Batch.PROBABILITIES)

    @property
    def weights(self) -> Any:
        """float32 ``[B]``: importance weights in (0, 1]."""
        return self._tensor(_core.Batch.WEIGHTS)

    @property
    def masks(self) -> Mapping[str, Any]:
        """By output, bool ``[B, L]`` (``[B]`` for a `Step`): False where a row is padding."""
        return _PerOutput(self._outputs, lambda output: self._tensor(_core.Batch.MASK, output))

    @property
    def lengths(self) -> Mapping[str, Any]:
        """By output, int32 ``[B]``: the number of steps in the window that exist."""
        return _PerOutput(self._outputs, lambda output: self._tensor(_core.Batch.LENGTHS, output))

    @property
    def cu_seqlens(self) -> Mapping[str, Any]:
        """By output, int32 ``[B + 1]``, packed only: the row at which each item begins."""
        return _PerOutput(
            self._outputs, lambda output: self._tensor(_core.Batch.CU_SEQLENS, output)
        )

    def __repr__(self) -> str:
        return f"Batch(size={self.size}, outputs={list(self._outputs)})"


class _PerOutput(InProcess, Mapping[str, Any]):
    """One tensor per output name, made when asked for."""

    _instead = "give its tensors, as in dict(batch.masks)"

    def __init__(self, outputs: Mapping[str, int], make: Callable[[int], Any]) -> None:
        self._outputs = outputs
        self._make = make

    def __getitem__(self, name: str) -> Any:
        return self._make(self._outputs[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)
