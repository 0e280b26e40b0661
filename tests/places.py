"""Where a buffer keeps its steps and where its batches go: what the contract suite runs over.

With a place whose batches go to a GPU, whoever asks for NumPy gets copies of what is there, so that
a test need not know.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import gear

_NUMBERS = itertools.count()  # of all tiers: a buffer may outlive the one that it was made on


class Tier:
    """Makes buffers on one tier and gives their memory back.

    Args:
        name: of the tier.
        device: where batches go.
        path: how they get there; None: the loader's default.
        rehearsal: everything in host memory instead, to try a test where there is no GPU.
    """

    def __init__(
        self, name: str, device: str = "cpu", path: str | None = None, *, rehearsal: bool = False
    ) -> None:
        self.delivers_to_gpu = device != "cpu"
        if rehearsal:
            name, device, path = "shared" if name == "shared" else "host", "cpu", None
        self.name = name
        self.device = device
        self.path = path

    def arguments(self) -> dict[str, Any]:
        """What places a buffer on this tier; a region name of its own every time."""
        if self.name != "shared":
            return {"tier": self.name}
        return {"tier": "shared", "name": f"gear_test_{os.getpid()}_{next(_NUMBERS)}"}

    @contextmanager
    def buffer(
        self, schema: gear.Schema, capacity: int, **more: Any
    ) -> Iterator[gear.ReplayBuffer]:
        with self.make(schema, capacity, **more) as buffer:
            yield buffer

    @contextmanager
    def load(self, path: Path) -> Iterator[gear.ReplayBuffer]:
        with self.kind().load(path, **self.arguments()) as buffer:
            yield buffer

    def make(self, schema: gear.Schema, capacity: int, **more: Any) -> gear.ReplayBuffer:
        return self.kind()(schema, capacity, **self.arguments(), **more)

    def kind(self) -> type[gear.ReplayBuffer]:
        """The class of buffer whose batches go to this place's device."""
        if not self.delivers_to_gpu:
            return gear.ReplayBuffer
        return type("Delivering", (DeliveringBuffer,), {"device": self.device, "path": self.path})


class DeliveringBuffer(gear.ReplayBuffer):
    """A buffer whose batches go to `device` unless the call says otherwise."""

    device: str
    path: str | None

    def loader(self, batch_size: int, *, framework: str | None = None, **more: Any) -> Any:
        elsewhere = "device" in more
        if not elsewhere:
            more["device"] = self.device
            if self.path is not None:
                more.setdefault("path", self.path)
        if framework != "numpy" or elsewhere:
            return super().loader(batch_size, framework=framework, **more)
        return HostLoader(super().loader(batch_size, framework="torch", **more))

    def collect(
        self, ids: Any, outputs: Any = None, *, framework: str | None = None, **more: Any
    ) -> Any:
        elsewhere = "device" in more
        if self.device != "cpu":
            more.setdefault("device", self.device)
        if framework != "numpy" or elsewhere:
            return super().collect(ids, outputs, framework=framework, **more)
        return HostBatch(super().collect(ids, outputs, framework="torch", **more))


def as_numpy(value: Any) -> np.ndarray:
    """A tensor of any framework and device as an array in host memory; bfloat16 as its bits."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):
        if str(value.dtype) == "torch.bfloat16":
            import torch

            return np.asarray(value.detach().view(torch.int16).cpu().numpy()).view(np.uint16)
        return np.asarray(value.detach().cpu().numpy())
    return np.asarray(value.get() if hasattr(value, "get") else value)


class HostBatch(Mapping[str, np.ndarray]):
    """A batch on a GPU seen as NumPy arrays: copies, made whenever one is asked for."""

    def __init__(self, batch: gear.Batch) -> None:
        self.batch = batch

    def __getitem__(self, name: str) -> np.ndarray:
        return as_numpy(self.batch[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.batch)

    def __len__(self) -> int:
        return len(self.batch)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.batch, name)
        if name in ("ids", "probabilities", "weights"):
            return as_numpy(value)
        if name in ("masks", "lengths", "cu_seqlens"):
            return HostTensors(value.__getitem__, list(self.batch))
        return value


class HostTensors(Mapping[str, np.ndarray]):
    """`batch.masks` and the like."""

    def __init__(self, get: Callable[[str], Any], names: list[str]) -> None:
        self._get = get
        self._names = names

    def __getitem__(self, name: str) -> np.ndarray:
        return as_numpy(self._get(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class HostLoader(Iterator[HostBatch]):
    """A loader of batches on a GPU that gives `HostBatch`es."""

    def __init__(self, loader: gear.Loader) -> None:
        self._loader = loader

    def __next__(self) -> HostBatch:
        return HostBatch(next(self._loader))

    def __len__(self) -> int:
        return len(self._loader)

    def __enter__(self) -> HostLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self._loader.close()

    @property
    def beta(self) -> float:
        return self._loader.beta

    @beta.setter
    def beta(self, value: float) -> None:
        self._loader.beta = value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
