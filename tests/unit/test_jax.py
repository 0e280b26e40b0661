"""JAX on the CPU: batches as its arrays, and priorities that reach the steps they are of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gear

pytestmark = pytest.mark.jax
SCHEMA = gear.Schema([gear.Column("obs", (3,), "float32"), gear.Column("number", (), "int32")])


@pytest.fixture(params=[False, True], ids=["32-bits", "64-bits"])
def jax(request: pytest.FixtureRequest) -> Iterator[Any]:
    """JAX as it comes, and told to keep 64 bits."""
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", request.param)
    yield jax
    jax.config.update("jax_enable_x64", before)


def write_episode(buffer: gear.ReplayBuffer, first: int, steps: int) -> None:
    numbers = np.arange(first, first + steps, dtype=np.int32)
    with buffer.writer() as writer:
        writer.extend(obs=np.repeat(numbers, 3).reshape(-1, 3).astype(np.float32), number=numbers)


def test_arrays_are_those_of_jax(jax: Any) -> None:
    with gear.ReplayBuffer(SCHEMA, 64) as buffer:
        write_episode(buffer, 100, 20)
        with buffer.loader(
            8, outputs={"obs": gear.Window(-1, 2), "number": gear.Step()}, framework="jax"
        ) as loader:
            batch = next(loader)
        for tensor in (batch["obs"], batch["number"], batch.masks["obs"], batch.weights):
            assert isinstance(tensor, jax.Array)
        numbers = np.asarray(batch["number"])
        assert np.array_equal(np.asarray(batch["obs"])[:, 1, 0], numbers)
        stored = buffer.episodes()[0]
        assert np.array_equal(batch.ids, stored.ids[numbers - 100])


def test_updates_reach_steps_in_pages_used_again(jax: Any) -> None:
    """Ids of reused pages do not fit into 32 bits, which is what JAX makes of int64 by default."""
    with gear.ReplayBuffer(SCHEMA, 64, page_steps=4) as buffer:
        for episode in range(20):
            write_episode(buffer, 20 * episode, 20)
        with buffer.loader(8, sampler=gear.Weighted(), framework="jax") as loader:
            batch = next(loader)
            assert isinstance(batch.ids, np.ndarray)
            assert batch.ids.dtype == np.int64
            assert buffer.update(batch.ids, jax.numpy.full(8, 7.0)) == 8
        assert set(buffer.priorities(batch.ids).tolist()) == {7.0}
        assert buffer.stats()["stale_updates"] == 0


def test_updates_reach_episodes(jax: Any) -> None:
    with gear.ReplayBuffer(SCHEMA, 64) as buffer:
        write_episode(buffer, 0, 10)
        write_episode(buffer, 10, 10)
        sampler = gear.Uniform(unit="episode")
        with buffer.loader(4, sampler=sampler, framework="jax") as loader:
            assert buffer.update(next(loader).ids, jax.numpy.full(4, 3.0)) == 4


def test_ids_that_jax_has_cut_are_refused(jax: Any) -> None:
    with gear.ReplayBuffer(SCHEMA, 64) as buffer:
        write_episode(buffer, 0, 10)
        ids = jax.numpy.asarray(buffer.episodes()[0].ids.astype(np.int32))
        with pytest.raises(gear.InvalidArgument, match=r"ids of dtype int32.*int64"):
            buffer.update(ids, jax.numpy.ones(10))
