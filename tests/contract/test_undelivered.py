"""What a loader drew ahead and did not deliver is given back: to the buffer, and to its limits."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import gear

SCHEMA = gear.Schema([gear.Column("x", (), "int32")])
SAMPLERS = [
    gear.Uniform(),
    gear.Weighted(),
    gear.Fifo(),
    gear.Lifo(),
    gear.TopK(),
    gear.Uniform(unit="episode"),
    gear.Fifo(unit="episode"),
    gear.TopK(unit="episode"),
]
STEPS = 100


def write(buffer: gear.ReplayBuffer, lengths: list[int]) -> None:
    """Ended episodes with rows 0, 1, 2, ... and growing priorities."""
    first = 0
    for length in lengths:
        with buffer.writer() as writer:
            rows = np.arange(first, first + length, dtype=np.int32)
            writer.extend(x=rows, priority=1.0 + rows.astype(np.float32))
        first += length


@contextmanager
def filled(tier, sampler: gear.Sampler) -> Iterator[gear.ReplayBuffer]:
    """100 items to draw, each once."""
    with tier.buffer(SCHEMA, 512, page_steps=4, max_times_sampled=1) as buffer:
        write(buffer, [1] * STEPS if sampler.unit == "episode" else [30, 1, 5, 23, 41])
        yield buffer


@pytest.mark.parametrize("prefetch", [0, 2, 8])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_queue_read_by_many_loaders_loses_nothing(tier, sampler, prefetch: int) -> None:
    with filled(tier, sampler) as buffer:
        delivered: list[int] = []
        for turn in range(10):
            with buffer.loader(10, sampler=sampler, framework="numpy", prefetch=prefetch) as loader:
                delivered += next(loader)["x"].tolist()
                assert buffer.stats()["steps_sampled"] == 10 * (turn + 1)
        assert sorted(delivered) == list(range(STEPS))
        if isinstance(sampler, gear.Fifo):
            assert delivered == sorted(delivered)
        assert len(buffer) == buffer.num_episodes == 0
        assert buffer.stats()["pages_free"] == buffer.stats()["pages"]


@pytest.mark.parametrize("prefetch", [0, 2, 8])
def test_deliveries_are_counted_and_not_draws(tier, prefetch: int) -> None:
    with tier.buffer(SCHEMA, 128) as buffer:
        write(buffer, [STEPS])
        for turn, sampler in enumerate([gear.Sequential(), gear.Sequential(shuffle=False)] * 2):
            with buffer.loader(10, sampler=sampler, framework="numpy", prefetch=prefetch) as loader:
                for _ in range(3):
                    next(loader)
            assert buffer.stats()["steps_sampled"] == 30 * (turn + 1)


def test_every_step_is_counted_though_an_episode_goes_on(tier) -> None:
    """Pages of one open episode come back before, between and behind those that are left."""
    with tier.buffer(SCHEMA, 256, page_steps=4, max_times_sampled=2) as buffer:
        delivered: list[int] = []
        writer = buffer.writer()
        for turn in range(30):
            writer.extend(x=np.arange(7 * turn, 7 * (turn + 1), dtype=np.int32))
            sampler = [gear.Fifo(), gear.Lifo(), gear.Uniform()][turn % 3]
            with buffer.loader(3, sampler=sampler, framework="numpy", prefetch=turn % 4) as loader:
                delivered += next(loader)["x"].tolist()
        writer.end_episode(terminated=True)
        with buffer.loader(30, sampler=gear.Fifo(), framework="numpy", prefetch=4) as loader:
            while len(buffer):
                delivered += next(loader)["x"].tolist()
        assert np.bincount(delivered).tolist() == [2] * 210


def by_close(loader: gear.Loader) -> None:
    loader.close()


def by_an_error(loader: gear.Loader) -> None:
    with pytest.raises(RuntimeError, match="learner"), loader:
        raise RuntimeError("the learner failed")


def by_nobody(loader: gear.Loader) -> None:
    """The caller holds it no more either."""


ENDS: list[Callable[[gear.Loader], None]] = [by_close, by_an_error, by_nobody]


@pytest.mark.parametrize("end", ENDS)
def test_however_a_loader_ends(tier, end: Callable[[gear.Loader], None]) -> None:
    with filled(tier, gear.Fifo()) as buffer:
        loader = buffer.loader(10, sampler=gear.Fifo(), framework="numpy", prefetch=4)
        batch = next(loader)
        assert buffer.stats()["anchors"] == STEPS - 50
        end(loader)
        del loader
        gc.collect()
        assert buffer.stats()["anchors"] == STEPS - 10
        assert batch["x"].tolist() == list(range(10))
        with buffer.loader(90, sampler=gear.Fifo(), framework="numpy") as loader:
            assert next(loader)["x"].tolist() == list(range(10, STEPS))


def test_steps_of_pages_that_went_meanwhile_are_not_given_back(tier) -> None:
    with tier.buffer(SCHEMA, 32, page_steps=4, max_times_sampled=1) as buffer:
        write(buffer, [16, 16])
        loader = buffer.loader(8, sampler=gear.Fifo(), framework="numpy", prefetch=1)
        assert next(loader)["x"].tolist() == list(range(8))
        with buffer.writer() as writer:
            writer.extend(x=np.arange(100, 112, dtype=np.int32))  # three pages, one with 8 to 11
        loader.close()
        with buffer.loader(64, sampler=gear.Fifo(), framework="numpy", prefetch=0) as rest:
            found = next(rest)["x"].tolist()
        assert found == [*range(12, 32), *range(100, 112)]


def test_a_rate_limit_forgets_what_was_not_delivered(tier) -> None:
    limit = gear.RateLimit(samples_per_insert=1.0, min_steps=40, slack=20)
    with tier.buffer(SCHEMA, 64, rate_limit=limit) as buffer:
        write(buffer, [40])
        for _ in range(2):  # of 20 samples that it allows
            with buffer.loader(10, framework="numpy", prefetch=1, timeout_s=0.0) as loader:
                next(loader)
        with (
            buffer.loader(10, framework="numpy", timeout_s=0.0) as loader,
            pytest.raises(TimeoutError),
        ):
            next(loader)
        assert buffer.stats()["steps_sampled"] == 20


@pytest.mark.parametrize("prefetch", [2, 5])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_resumed_run_delivers_what_the_whole_one_does(
    tier, tmp_path: Path, sampler, prefetch: int
) -> None:
    def run(buffer: gear.ReplayBuffer, loader: gear.Loader, turns: range) -> list[object]:
        found: list[object] = []
        for turn in turns:
            try:
                batch = next(loader)
                found += [batch["x"].tolist(), batch.ids.tolist(), batch.weights.tolist()]
                buffer.update(batch.ids, np.full(batch.size, float(turn % 5)))
            except TimeoutError:
                found.append("nothing")
            with buffer.writer() as writer:
                writer.extend(x=np.arange(8 * turn, 8 * turn + 1 + turn % 5, dtype=np.int32))
        stats = buffer.stats()
        counts = [stats[key] for key in ("steps_sampled", "steps_evicted", "pages_free", "anchors")]
        return [*found, counts, [(e.uid, e.begin, e.end, e.priority) for e in buffer.episodes()]]

    def make(buffer: gear.ReplayBuffer) -> gear.Loader:
        return buffer.loader(
            4, sampler=sampler, framework="numpy", prefetch=prefetch, seed=3, timeout_s=0.0
        )

    limit = gear.RateLimit(samples_per_insert=1.0, min_steps=1, slack=90.0)
    kind = {"evict": "lowest_priority", "max_times_sampled": 2, "rate_limit": limit}
    with tier.buffer(SCHEMA, 64, page_steps=4, **kind) as buffer:
        write(buffer, [9, 3, 1, 6, 2, 7])
        loader = make(buffer)
        run(buffer, loader, range(7))
        buffer.save(tmp_path / "replay")
        state = copy.deepcopy(loader.state_dict())
        expected = run(buffer, loader, range(7, 25))
        loader.close()
    with tier.load(tmp_path / "replay") as buffer:
        loader = make(buffer)
        loader.load_state_dict(state)
        assert run(buffer, loader, range(7, 25)) == expected


def test_a_buffer_that_is_loaded_without_the_state_has_what_was_in_flight(
    tier, tmp_path: Path
) -> None:
    with filled(tier, gear.Fifo()) as buffer:
        loader = buffer.loader(10, sampler=gear.Fifo(), framework="numpy", prefetch=4)
        next(loader)
        buffer.save(tmp_path / "replay")
        state = loader.state_dict()
        # Another state in place of this one: what the loader had in flight is given back first.
        loader.load_state_dict(state)
        assert buffer.stats()["anchors"] == STEPS - 50
        assert next(loader)["x"].tolist() == list(range(10, 20))
    with (
        tier.load(tmp_path / "replay") as buffer,
        buffer.loader(90, sampler=gear.Fifo(), framework="numpy") as loader,
    ):
        assert next(loader)["x"].tolist() == list(range(10, STEPS))
