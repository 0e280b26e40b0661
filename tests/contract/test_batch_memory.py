"""A batch is the consumer's for as long as any view of it lives; lifetimes end in any order."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from places import as_numpy

import gear

pytestmark = pytest.mark.subject("library")

SCHEMA = gear.Schema([gear.Column("obs", (11,), "float32"), gear.Column("frame", (8, 8), "uint8")])
OUTPUTS = {"obs": gear.Window(-1, 3), "frame": gear.Step()}
FRAMEWORKS = [
    "numpy",
    pytest.param(
        "torch", marks=pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
    ),
]


def fill(buffer: gear.ReplayBuffer, steps: int = 200) -> None:
    rng = np.random.default_rng(0)
    with buffer.writer() as writer:
        writer.extend(
            obs=rng.random((steps, 11), np.float32),
            frame=rng.integers(0, 256, (steps, 8, 8), np.uint8),
        )


def views(batch: gear.Batch) -> dict[str, Any]:
    return {
        "ids": batch.ids,
        "slice": batch["obs"][2:5, 1:, ::3],
        "row": batch["frame"][7],
        "mask": batch.masks["obs"],
        "lengths": batch.lengths["obs"][1:],
        "probabilities": batch.probabilities,
    }


def copies(held: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: as_numpy(value).copy() for name, value in held.items()}


def assert_intact(held: list[dict[str, Any]], saved: list[dict[str, np.ndarray]]) -> None:
    for views_of_one, copies_of_one in zip(held, saved, strict=True):
        for name, value in views_of_one.items():
            assert np.array_equal(as_numpy(value), copies_of_one[name]), name


@pytest.mark.parametrize("keep", [lambda batch: batch, views], ids=["batches", "slices"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("prefetch", [1, 4])
def test_held_batches_are_never_overwritten(
    tier, framework: str, prefetch: int, keep: Callable[[gear.Batch], Any]
) -> None:
    with tier.buffer(SCHEMA, 256) as buffer:
        fill(buffer)
        loader = buffer.loader(32, outputs=OUTPUTS, framework=framework, prefetch=prefetch)
        kept, saved = [], []
        for number, batch in enumerate(itertools.islice(loader, 120)):
            if number % 2 == 0 and len(kept) < 50:
                kept.append(keep(batch))
                saved.append(copies(views(batch)))
        del batch
        held = list(kept) if keep is views else [views(batch) for batch in kept]
        assert len(held) == 50
        assert_intact(held, saved)
        del kept[::2], held[::2], saved[::2]
        gc.collect()
        for _ in itertools.islice(loader, 60):
            pass
        assert_intact(held, saved)
        loader.close()
    del loader, buffer
    gc.collect()
    assert_intact(held, saved)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_eviction_does_not_reach_delivered_batches(tier, framework: str) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=8) as buffer:
        fill(buffer, 60)
        loader = buffer.loader(16, outputs=OUTPUTS, framework=framework, prefetch=3)
        held, saved = [], []
        for _ in range(20):
            batch = next(loader)
            held.append(views(batch))
            saved.append(copies(held[-1]))
            fill(buffer, 60)
        assert_intact(held, saved)
        one = buffer.collect(buffer.episodes()[-1].ids, OUTPUTS, framework=framework)
        saved_one = copies(views(one))
        fill(buffer, 200)
        assert_intact([views(one)], [saved_one])


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_batches_may_be_written_to(tier, framework: str) -> None:
    """They are the consumer's: writing to one changes neither the store nor another batch."""
    with tier.buffer(SCHEMA, 256) as buffer:
        fill(buffer)
        ids = buffer.episodes()[0].ids
        first = buffer.collect(ids, OUTPUTS, framework=framework)
        saved = copies(views(first))
        second = buffer.collect(ids, OUTPUTS, framework=framework)
        second["obs"][...] = 7
        second["frame"][...] = 7
        assert_intact([views(first)], [saved])
        assert_intact([views(buffer.collect(ids, OUTPUTS, framework=framework))], [saved])


def test_dropping_things_in_any_order(tier) -> None:
    for order in itertools.permutations(["buffer", "writer", "loader", "batch"]):
        alive: dict[str, Any] = {"buffer": tier.make(SCHEMA, 64)}
        fill(alive["buffer"], 40)
        alive["writer"] = alive["buffer"].writer()
        alive["loader"] = alive["buffer"].loader(8, outputs=OUTPUTS, prefetch=4, framework="numpy")
        alive["batch"] = next(alive["loader"])
        saved = copies(views(alive["batch"]))
        for name in order:
            if "batch" in alive:
                assert_intact([views(alive["batch"])], [saved])
            del alive[name]


def test_closing_while_others_are_alive(tier) -> None:
    buffer = tier.make(SCHEMA, 64)
    fill(buffer, 40)
    loader = buffer.loader(8, outputs=OUTPUTS, prefetch=4, framework="numpy")
    writer = buffer.writer()
    batch = next(loader)
    saved = copies(views(batch))
    loader.close()
    loader.close()
    with pytest.raises(gear.InvalidArgument, match="closed"):
        next(loader)
    other = buffer.loader(8, outputs=OUTPUTS, prefetch=4, framework="numpy")
    next(other)
    buffer.close()
    buffer.close()
    assert next(other).size == 8, "who holds on to the memory may go on"
    writer.append(obs=np.zeros(11, np.float32), frame=np.zeros((8, 8), np.uint8))
    for call in (
        lambda: len(buffer),
        lambda: buffer.writer(),
        lambda: buffer.episodes(),
        lambda: buffer.loader(4),
        lambda: buffer.update([], []),
        lambda: buffer.save("/nowhere"),
    ):
        with pytest.raises(gear.InvalidArgument, match="closed"):
            call()
    assert_intact([views(batch)], [saved])
