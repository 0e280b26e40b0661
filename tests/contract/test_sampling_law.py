"""What uniform and weighted sampling promise: P(i) = w_i / W, exactly, whatever happened before."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import reference
from chance import chi_square_p, follows

import gear

ALPHA, BETA = 0.6, 0.4
EPISODE_BIT = 1 << 62
SCHEMA = gear.Schema([gear.Column("x", (), "int32")])


@dataclass
class World:
    """A buffer after 1e5 random inserts, updates and evictions, and what it must offer."""

    buffer: gear.ReplayBuffer
    ids: dict[str, np.ndarray]  # by unit, sorted
    priorities: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def world(tier) -> Iterator[World]:
    rng = np.random.default_rng(7)
    capacity, page_steps = 3000, 8
    with tier.buffer(SCHEMA, capacity, page_steps=page_steps) as buffer:
        model = reference.Buffer([reference.Column("x", (), "int32")], capacity, page_steps, "fifo")
        writers = [buffer.writer() for _ in range(4)]
        # Weights are kept in trees; they must be there from the start to be kept up to date.
        idle = [
            buffer.loader(1, sampler=gear.Weighted(alpha=ALPHA, beta=BETA, unit=unit))
            for unit in ("step", "episode")
        ]
        open_episodes: dict[int, reference.Episode] = {}
        known: dict[int, tuple[int, int]] = {}
        done = 0
        while done < 100_000:
            number = int(rng.integers(4))
            steps = int(rng.integers(1, 40))
            priorities = rng.uniform(0.01, 10, steps).astype(np.float32)
            writers[number].extend(x=rng.integers(0, 9, steps, np.int32), priority=priorities)
            episode = open_episodes.get(number) or model.open_episode()
            open_episodes[number] = episode
            for priority in priorities:
                model.append(episode, {}, float(priority))
            done += steps
            if rng.random() < 0.6:
                weight = float(rng.uniform(0.1, 5)) if rng.random() < 0.3 else None
                writers[number].end_episode(terminated=True, weight=weight)
                model.end_episode(open_episodes.pop(number), terminated=True, weight=weight)
            if done % 5 == 0:
                for stored in buffer.episodes():
                    places = [(stored.uid, t) for t in range(stored.begin, stored.end)]
                    known.update(zip(stored.ids.tolist(), places, strict=True))
                ids = rng.choice(list(known)[-2 * capacity :], 300)
                priorities = rng.uniform(0.01, 10, 300).astype(np.float32)
                applied = sum(
                    model.update_step(*known[int(i)], float(p))
                    for i, p in zip(ids, priorities, strict=True)
                )
                assert buffer.update(ids, priorities) == applied
                done += len(ids)
        assert buffer.stats()["steps_evicted"] > 10_000
        assert len(buffer) == len(model)
        yield offered(buffer, model)
        for loader in idle:
            loader.close()


def offered(buffer: gear.ReplayBuffer, model: reference.Buffer) -> World:
    ids: dict[str, list[int]] = {"step": [], "episode": []}
    priorities: dict[str, list[float]] = {"step": [], "episode": []}
    stored = {(e.uid): e for e in buffer.episodes()}
    for episode, step in model.anchors("step"):
        ids["step"].append(int(stored[episode.uid].ids[step - episode.begin]))
        priorities["step"].append(episode.priorities[step])
    for episode, _ in model.anchors("episode"):
        ids["episode"].append(int(stored[episode.uid].ids[0]) | EPISODE_BIT)
        priorities["episode"].append(episode.priority)
    order = {unit: np.argsort(ids[unit]) for unit in ids}
    return World(
        buffer,
        {unit: np.array(ids[unit])[order[unit]] for unit in ids},
        {unit: np.array(priorities[unit])[order[unit]] for unit in ids},
    )


@pytest.mark.parametrize("unit", ["step", "episode"])
@pytest.mark.parametrize("policy", ["uniform", "weighted"])
def test_draws_follow_their_law(world: World, policy: str, unit: str) -> None:
    ids, priorities = world.ids[unit], world.priorities[unit]
    weights = priorities**ALPHA if policy == "weighted" else np.ones(len(ids))
    law = weights / weights.sum()
    sampler = (
        gear.Weighted(alpha=ALPHA, beta=BETA, unit=unit)
        if policy == "weighted"
        else gear.Uniform(unit=unit)
    )
    counts = np.zeros(len(ids), np.int64)
    with world.buffer.loader(5000, sampler=sampler, framework="numpy", seed=11) as loader:
        for _ in range(60):
            batch = next(loader)
            places = np.searchsorted(ids, batch.ids)
            assert np.array_equal(ids[places], batch.ids), "an id that is not on offer"
            counts += np.bincount(places, minlength=len(ids))
            np.testing.assert_allclose(batch.probabilities, law[places], rtol=1e-5)
            importance = np.ones(batch.size)
            if policy == "weighted":
                importance = (len(ids) * law[places]) ** -BETA
                importance /= importance.max()
            np.testing.assert_allclose(batch.weights, importance, rtol=1e-5)
    assert follows(counts, law) > 0.001


def test_the_chi_square_test_itself() -> None:
    """Quantiles of tables: chi2(0.001, 100) = 149.449, chi2(0.5, 1000) = 999.333."""
    for cells, statistic, p in ((101, 149.449, 0.001), (1001, 999.333, 0.5)):
        expected = np.full(cells, 100.0)
        observed = expected.copy()
        observed[0] += math.sqrt(statistic * 100.0)
        assert chi_square_p(observed, expected) == pytest.approx(p, rel=0.05)


@pytest.mark.parametrize("sampler", [gear.Uniform(), gear.Weighted(), gear.Uniform(unit="episode")])
def test_draws_depend_on_the_seed_only(world: World, sampler) -> None:
    def draws(seed: int, prefetch: int) -> np.ndarray:
        with world.buffer.loader(
            64, sampler=sampler, framework="numpy", seed=seed, prefetch=prefetch
        ) as loader:
            return np.concatenate([next(loader).ids for _ in range(10)])

    first = draws(3, 1)
    for prefetch in (1, 2, 3, 4):
        assert np.array_equal(first, draws(3, prefetch))
    assert (first != draws(4, 1)).mean() > 0.9


def test_beta_can_be_annealed(world: World) -> None:
    sampler = gear.Weighted(alpha=ALPHA, beta=0.0)
    with world.buffer.loader(256, sampler=sampler, framework="numpy", prefetch=2) as loader:
        assert loader.beta == 0.0
        assert np.all(next(loader).weights == 1.0)
        loader.beta = 1.0
        assert loader.beta == 1.0
        for _ in range(3):  # drawn before, at most prefetch of them
            batch = next(loader)
        expected = batch.probabilities.min() / batch.probabilities.astype(np.float64)
        np.testing.assert_allclose(batch.weights, expected, rtol=1e-5)


def test_alpha_zero_is_uniform_over_all_but_priorities_of_zero(tier) -> None:
    with tier.buffer(SCHEMA, 64) as buffer:
        with buffer.writer() as writer:
            writer.extend(x=np.arange(8, dtype=np.int32), priority=np.arange(8, dtype=np.float32))
        with buffer.loader(
            100, sampler=gear.Weighted(alpha=0.0, beta=1.0), framework="numpy"
        ) as loader:
            np.testing.assert_array_equal(next(loader).probabilities, np.float32(1 / 7))
        buffer.update(buffer.episodes()[0].ids, np.full(8, 1e-20, np.float32))
        with buffer.loader(
            1000, sampler=gear.Weighted(alpha=1.0, beta=1.0), framework="numpy"
        ) as loader:
            batch = next(loader)
            np.testing.assert_array_equal(batch.probabilities, np.float32(1 / 8))
            assert set(batch["x"].tolist()) == set(range(8))
