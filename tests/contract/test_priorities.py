"""Priorities of steps and episodes: defaults, updates, means, and the eviction they steer."""

from __future__ import annotations

import numpy as np
import pytest

import gear

SCHEMA = gear.Schema([gear.Column("x", (), "int32")])


def write(buffer: gear.ReplayBuffer, priorities: list[float] | None, steps: int = 4, **end) -> int:
    """An ended episode; its uid."""
    writer = buffer.writer()
    writer.extend(x=np.arange(steps, dtype=np.int32), priority=priorities)
    uid = writer.episode
    writer.end_episode(**end)
    return uid


def by_uid(buffer: gear.ReplayBuffer) -> dict[int, float]:
    return {episode.uid: episode.priority for episode in buffer.episodes()}


def test_none_stands_for_the_largest_seen_so_far(tier) -> None:
    with tier.buffer(SCHEMA, 64) as buffer:
        assert buffer.stats()["max_priority"] == 0.0  # none was seen
        first = write(buffer, None)
        second = write(buffer, [0.5, 5.0, 2.0, 0.5])
        third = write(buffer, None)
        assert by_uid(buffer) == {first: 1.0, second: 2.0, third: 5.0}
        buffer.update(buffer.episodes()[0].ids[:1], [80.0])
        fourth = write(buffer, None)
        assert by_uid(buffer)[fourth] == buffer.stats()["max_priority"] == 80.0


def test_an_episode_has_the_mean_of_its_stored_steps_or_its_own(tier) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        mean = write(buffer, [1.0, 2.0, 3.0, 6.0])
        own = write(buffer, [1.0, 2.0, 3.0, 6.0], weight=0.25)
        assert by_uid(buffer) == {mean: 3.0, own: 0.25}
        for episode in buffer.episodes():
            buffer.update(episode.ids[:2], [3.0, 4.0])
        assert by_uid(buffer) == {mean: 4.0, own: 0.25}
        heads = [int(e.ids[0]) | 1 << 62 for e in buffer.episodes()]
        assert buffer.update(heads, [7.0, 8.0]) == 2
        assert by_uid(buffer) == {mean: 7.0, own: 8.0}


def test_the_mean_leaves_evicted_steps_out(tier) -> None:
    with tier.buffer(SCHEMA, 8, page_steps=4) as buffer:
        uid = write(buffer, [9.0, 9.0, 9.0, 9.0, 1.0, 2.0, 3.0, 2.0], steps=8)
        assert by_uid(buffer) == {uid: 5.5}
        buffer.writer().append(x=0)
        assert by_uid(buffer)[uid] == 2.0


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e-9, 60000.5, 65536.5, 1e6, 1e30])
def test_extreme_priorities_are_kept_as_they_are(tier, value: float) -> None:
    """Means are of fixed point, as fine as 2^-39 of the largest. A step's own priority is not."""
    with tier.buffer(SCHEMA, 64) as buffer:
        uid = write(buffer, [value] * 4)
        assert by_uid(buffer)[uid] == pytest.approx(value, rel=2**-24, abs=0.0)
        ids = buffer.episodes()[0].ids
        assert buffer.priorities(ids).tolist() == [np.float32(value)] * 4


def test_lowest_priority_evicts_the_lowest_the_older_among_equals(tier) -> None:
    with tier.buffer(SCHEMA, 24, page_steps=4, evict="lowest_priority") as buffer:
        uids = [
            write(buffer, [2.0] * 4),
            write(buffer, [1.0] * 4),
            write(buffer, [0.0] * 4),
            write(buffer, [5.0] * 4, weight=0.0),
            write(buffer, [3.0] * 4),
            write(buffer, [1.0] * 4),
        ]
        order = []
        for _ in range(3):
            before = set(by_uid(buffer))
            write(buffer, [9.0] * 4)
            order += before - set(by_uid(buffer))
        assert order == [uids[2], uids[3], uids[1]]
        ids = {e.uid: e.ids for e in buffer.episodes()}
        buffer.update(ids[uids[4]], [0.125] * 4)
        buffer.update([int(ids[uids[0]][0]) | 1 << 62], [0.25])
        for expected in (uids[4], uids[0], uids[5]):
            before = set(by_uid(buffer))
            write(buffer, [9.0] * 4)
            assert before - set(by_uid(buffer)) == {expected}


def test_weights_too_small_beside_the_largest_are_counted(tier) -> None:
    with tier.buffer(SCHEMA, 64) as buffer:
        write(buffer, [1e30, 1.0, 1e30, 1.0])
        with buffer.loader(
            1000, sampler=gear.Weighted(alpha=1.0), framework="numpy", prefetch=1
        ) as loader:
            assert set(next(loader)["x"].tolist()) == {0, 2}
        assert buffer.stats()["saturated_weights"] >= 2


def test_an_episode_too_small_beside_the_largest_is_counted_once_a_law(tier) -> None:
    def saturated() -> int:
        return buffer.stats()["saturated_weights"]

    with tier.buffer(SCHEMA, 16, page_steps=4) as buffer:
        laws = [gear.Weighted(alpha=alpha, unit="episode") for alpha in (1.0, 0.9)]
        with buffer.loader(1, sampler=laws[0], framework="numpy"):
            write(buffer, [1.0] * 16, 16, weight=1e-30)
            assert saturated() == 1
            write(buffer, [1.0] * 12, 12)  # takes three of its four pages
            assert len(buffer.episodes()[0].ids) == 4
            assert saturated() == 1
            with buffer.loader(1, sampler=laws[1], framework="numpy"):
                assert saturated() == 2
                episode = int(buffer.episodes()[0].ids[0]) | 1 << 62
                buffer.update([episode], [2e-30])
                assert saturated() == 4


# ---- what is weighed is how priorities compare ----

PRIORITIES = np.random.default_rng(5).uniform(0.001, 2.0, 40).astype(np.float32)


def drawn(
    tier, priorities: np.ndarray, *, alpha: float = 1.0, unit: str = "step", n: int = 1000
) -> tuple[np.ndarray, np.ndarray]:
    """Which were drawn, and with what probability."""
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        if unit == "step":
            write(buffer, priorities.tolist(), len(priorities))
        else:
            for weight in priorities:
                write(buffer, None, 1, weight=float(weight))
        sampler = gear.Weighted(alpha=alpha, beta=1.0, unit=unit)
        with buffer.loader(n, sampler=sampler, framework="numpy", seed=3) as loader:
            batch = next(loader)
            return np.array(batch.ids), np.array(batch.probabilities)


@pytest.mark.parametrize("factor", [2.0**-100, 2.0**-24, 0.5, 2.0, 2.0**30, 2.0**100])
def test_a_power_of_two_changes_no_draw(tier, factor: float) -> None:
    for unit in ("step", "episode"):
        # A step's default priority of 1 beside the weights of episodes would be the largest.
        few = PRIORITIES[:12] * (1 if unit == "step" else 8)
        if unit == "episode" and factor < 1:
            continue
        for plain, scaled in zip(
            drawn(tier, few, unit=unit),
            drawn(tier, few * np.float32(factor), unit=unit),
            strict=True,
        ):
            np.testing.assert_array_equal(plain, scaled)


@pytest.mark.parametrize("factor", [1e-30, 1e-8, 1 / 3, 7.0, 1e12, 1e30])
@pytest.mark.parametrize("alpha", [0.3, 0.6, 1.0, 1.2])
def test_a_factor_changes_no_probability(tier, factor: float, alpha: float) -> None:
    found = [
        dict(zip(*drawn(tier, PRIORITIES * np.float32(by), alpha=alpha), strict=True))
        for by in (1.0, factor)
    ]
    both = sorted(set(found[0]) & set(found[1]))
    assert len(both) > len(PRIORITIES) / 2
    plain, scaled = ([float(one[step]) for step in both] for one in found)
    np.testing.assert_allclose(scaled, plain, rtol=2**-20)


@pytest.mark.parametrize("unit", ["step", "episode"])
def test_small_priorities_are_drawn_as_they_compare(tier, unit: str) -> None:
    ratios = np.array([1.0, 3.0, 6.0])
    weights = (ratios * 1e-8).astype(np.float32)
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        for weight in weights:
            write(buffer, [float(weight)] * 4)  # an episode has their mean
        with buffer.loader(
            5000, sampler=gear.Weighted(alpha=1.0, unit=unit), framework="numpy", seed=1
        ) as loader:
            batch = next(loader)
            ids = np.array(batch.ids) & (1 << 32) - 1
            observed = np.bincount(ids // 4, minlength=3)[:3]
        assert buffer.stats()["saturated_weights"] == 0
    expected = ratios / 10 * 5000
    assert (np.abs(observed - expected) < 4 * np.sqrt(expected)).all()


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_zero_is_never_drawn(tier, alpha: float) -> None:
    priorities = PRIORITIES.copy()
    priorities[::3] = 0
    ids, probabilities = drawn(tier, priorities, alpha=alpha, n=5000)
    steps = ids & (1 << 32) - 1
    assert set(steps.tolist()) == set(np.flatnonzero(priorities).tolist())
    assert (probabilities > 0).all()


def test_an_update_to_zero_ends_and_one_from_zero_begins_it(tier) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        write(buffer, [1.0, 0.0, 2.0, 0.0])
        ids = buffer.episodes()[0].ids
        with buffer.loader(
            500, sampler=gear.Weighted(alpha=0.7), framework="numpy", prefetch=1
        ) as loader:
            next(loader)
            buffer.update(ids[[0, 1]], [0.0, 8.0])
            next(loader)  # was drawn before
            assert set(next(loader).ids.tolist()) == {ids[1], ids[2]}


def said_of(loader: gear.Loader) -> str:
    """A GPU draws before its host hears that nothing weighs anything."""
    for _ in range(6):
        try:
            assert len(next(loader).ids) > 0  # which waits for the GPU
        except gear.InvalidArgument as error:
            return str(error)
    return "nothing"


def test_priorities_of_zero_alone_say_so_and_one_above_it_goes_on(tier) -> None:
    with tier.buffer(SCHEMA, 64) as buffer:
        write(buffer, [0.0] * 4)
        ids = buffer.episodes()[0].ids
        with buffer.loader(
            10, sampler=gear.Weighted(alpha=1.0), framework="numpy", prefetch=1
        ) as loader:
            with pytest.raises(gear.InvalidArgument, match="every priority is 0"):
                next(loader)
            for priority in (0.5, 3.0):
                buffer.update(ids[:1], [priority])
                for _ in range(3):
                    drawn_before = said_of(loader)
                assert drawn_before == "nothing"
                assert set(next(loader).ids.tolist()) == {ids[0]}
                buffer.update(ids[:1], [0.0])
                assert "every priority is 0" in said_of(loader)


def test_zero_for_a_while_is_no_error(tier) -> None:
    """Where the host draws: what is drawn ahead waits for a priority above 0."""
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        write(buffer, [1.0] * 4)
        ids = buffer.episodes()[0].ids
        sampler = gear.Weighted(alpha=0.7, unit="episode")
        with buffer.loader(10, sampler=sampler, framework="numpy", prefetch=1) as loader:
            next(loader)
            buffer.update(ids, [0.0] * 4)
            next(loader)  # was drawn before
            loader.state_dict()
            buffer.update(ids, [1.0] * 4)
            for _ in range(3):
                assert (next(loader).weights == 1).all()


def test_means_are_exact_beside_a_large_priority(tier) -> None:
    with tier.buffer(SCHEMA, 24, page_steps=4, evict="lowest_priority") as buffer:
        first = write(buffer, [1e12] * 4)
        buffer.update(buffer.episodes()[0].ids, [0.05] * 4)
        wanted = {first: 0.05}
        for priority in (0.5, 0.1, 0.9, 0.3, 0.2):
            wanted[write(buffer, [priority] * 4)] = priority
        found = by_uid(buffer)
        assert found == {uid: pytest.approx(float(np.float32(p))) for uid, p in wanted.items()}
        for gone in (0.05, 0.1, 0.2):
            write(buffer, [1.0] * 4)
            assert all(abs(p - gone) > 1e-3 for p in by_uid(buffer).values())


def test_no_priority_stands_for_1_while_all_are_zero(tier) -> None:
    with tier.buffer(SCHEMA, 64) as buffer:
        write(buffer, [0.0] * 4)
        uid = write(buffer, None)
        assert by_uid(buffer)[uid] == buffer.stats()["max_priority"] == 1.0


@pytest.mark.parametrize("update", [0.5, 0.0])
def test_the_largest_of_an_update_is_that_of_the_next_step(tier, update: float) -> None:
    """Where nothing above 0 was appended, too, and a GPU alone knows what was updated."""
    with tier.buffer(SCHEMA, 64) as buffer:
        write(buffer, [0.0] * 4)
        with buffer.loader(4, sampler=gear.Weighted(alpha=0.6), framework="numpy"):
            buffer.update(buffer.episodes()[0].ids[:1], [update])
            uid = write(buffer, None)
            assert by_uid(buffer)[uid] == buffer.stats()["max_priority"] == (update or 1.0)


def test_a_larger_one_makes_weights_anew(tier) -> None:
    """However the largest came, the law is that of a buffer that knew it from the start."""
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        laws = [gear.Weighted(alpha=alpha, beta=1.0) for alpha in (0.6, 1.0)]
        laws.append(gear.Weighted(alpha=0.6, beta=1.0, unit="episode"))
        held = [buffer.loader(64, sampler=law, framework="numpy", seed=2) for law in laws]
        write(buffer, (PRIORITIES[:12] * np.float32(1e-6)).tolist(), 12)
        write(buffer, PRIORITIES[:12].tolist(), 12)
        ids = buffer.episodes()[0].ids
        buffer.update(ids[:3], [1e3, 2e-3, 5e6])
        write(buffer, [1e9, 1.0, 3.0, 5.0])
        for loader, law in zip(held, laws, strict=True):
            with buffer.loader(64, sampler=law, framework="numpy", seed=2) as fresh:
                mine, wanted = next(loader), next(fresh)
                np.testing.assert_array_equal(mine.ids, wanted.ids)
                np.testing.assert_array_equal(mine.probabilities, wanted.probabilities)
            loader.close()


# ---- importance weights by the least probability of all that may be drawn ----


def expected_weights(priorities: dict[int, float], ids: np.ndarray, alpha: float, beta: float):
    """By id; of (P / least P above 0)^-beta."""
    powers = {key: priority**alpha for key, priority in priorities.items() if priority > 0}
    least = min(powers.values())
    return np.array([(powers[int(key)] / least) ** -beta for key in ids])


@pytest.mark.parametrize("unit", ["step", "episode"])
def test_importance_weights_by_the_least_probability_of_all(tier, unit: str) -> None:
    sampler = gear.Weighted(alpha=0.7, beta=0.6, unit=unit, normalize="buffer")
    rng = np.random.default_rng(8)
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        write(buffer, [1.0] * 4)
        with buffer.loader(5, sampler=sampler, framework="numpy", prefetch=1) as loader:

            def check() -> None:
                next(loader)  # was drawn before
                batch = next(loader)
                stored = {}
                for episode in buffer.episodes():
                    if unit == "episode":
                        stored[int(episode.ids[0]) | 1 << 62] = episode.priority
                    else:
                        each = buffer.priorities(episode.ids).tolist()
                        stored.update(zip(episode.ids.tolist(), each, strict=True))
                np.testing.assert_allclose(
                    batch.weights, expected_weights(stored, batch.ids, 0.7, 0.6), rtol=1e-5
                )

            check()
            for turn in range(24):  # evicts
                end = {"weight": float(rng.uniform(0.01, 9))} if turn % 3 == 0 else {}
                write(buffer, rng.uniform(0.01, 9, 4).astype(np.float32).tolist(), **end)
                if turn % 2 == 0:
                    ids = np.concatenate([episode.ids for episode in buffer.episodes()])
                    chosen = rng.choice(ids, 6)
                    values = rng.uniform(0.001, 20, 6).astype(np.float32)
                    values[0] = [0.0, 1e-5, 30.0 * 1.5**turn][turn % 3]
                    buffer.update(chosen, values)
                check()


def test_the_least_probability_of_all_is_that_of_what_the_law_may_draw(tier) -> None:
    """Not of a step that is too close to the end, nor of one whose priority is 0."""
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        writer = buffer.writer()
        writer.extend(x=np.arange(5, dtype=np.int32), priority=[4.0, 0.0, 2.0, 8.0, 0.001])
        sampler = gear.Weighted(alpha=1.0, beta=1.0, normalize="buffer")
        outputs = {"x": gear.Step(), "next": gear.Step(1, "x")}
        with buffer.loader(50, sampler=sampler, outputs=outputs, framework="numpy") as loader:
            batch = next(loader)
            by_step = dict(zip(np.array(batch["x"]).tolist(), batch.weights.tolist(), strict=True))
        assert by_step == {0: 0.5, 2: 1.0, 3: 0.25}
