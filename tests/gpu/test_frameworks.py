"""CuPy and JAX take batches where they lie, by the protocol of torch."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from numbered import COLUMNS, SCHEMA, check, outputs, write

import gear

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@pytest.fixture(params=["pinned", "device"])
def buffer(request: pytest.FixtureRequest, gpu) -> Any:
    if gpu.rehearsal:
        pytest.skip("frameworks of GPUs")
    with gear.ReplayBuffer(SCHEMA, 1024, tier=request.param) as made:
        write(made, 1, [300, 5, 200], np.random.default_rng(0))
        yield made


@pytest.mark.parametrize("packed", [False, True])
def test_cupy(buffer, packed: bool) -> None:
    cupy = pytest.importorskip("cupy")
    with buffer.loader(
        64, outputs=outputs(-1, 3), packed=packed, device="cuda", framework="cupy"
    ) as loader:
        for _ in range(6):
            batch = next(loader)
            arrays = {name: batch[name] for name in batch}
            assert all(isinstance(array, cupy.ndarray) for array in arrays.values())
            check({name: array.get() for name, array in arrays.items()})
            assert isinstance(batch.ids, cupy.ndarray)
            buffer.update(batch.ids, cupy.full(64, 2.0, cupy.float32))
    assert set(buffer.priorities(batch.ids.get()).tolist()) == {2.0}


def test_cupy_on_a_stream_of_its_own(buffer) -> None:
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    copies = []
    with buffer.loader(64, device="cuda", framework="cupy") as loader, stream:
        for _ in range(20):
            batch = next(loader)
            copies.append({column.name: batch[column.name].copy() for column in COLUMNS})
            del batch
    stream.synchronize()
    for copy in copies:
        check({name: array.get() for name, array in copy.items()})


def test_jax(buffer) -> None:
    jax = pytest.importorskip("jax")
    if not any(device.platform in ("gpu", "cuda") for device in jax.devices()):
        pytest.skip("this jax has no GPU")
    with buffer.loader(64, device="cuda", framework="jax") as loader:
        for _ in range(6):
            batch = next(loader)
            assert isinstance(batch["obs"], jax.Array)
            assert batch.ids.dtype == np.int64  # of NumPy, whatever JAX makes of 64 bits
            check({name: np.asarray(batch[name]) for name in batch})
            priorities = jax.numpy.full(64, 3.0, jax.numpy.float32)
            buffer.update(batch.ids, priorities)
            assert set(buffer.priorities(batch.ids).tolist()) == {3.0}
