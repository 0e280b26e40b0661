"""What sampling promises over all ranks together: the law of the whole, epochs, queues."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from chance import follows

import gear
from distributed.content import RANK_STRIDE
from distributed.groups import EACH_COMMIT, ONE_AND_ODD, Group, groups
from distributed.life import QUEUE_LENGTHS
from distributed.programs import (
    EPOCH_BATCH,
    EPOCHS,
    LAW_BATCH,
    LAW_BATCHES,
    LAW_STEPS,
    LAWS,
    NUM_EPISODES,
    epoch_owners,
    law_priorities,
    law_shares,
)

pytestmark = pytest.mark.parametrize(
    "group", groups(each_commit=EACH_COMMIT | ONE_AND_ODD), indirect=True
)


@pytest.mark.parametrize("locality", ["first", "off"])
@pytest.mark.parametrize("name", LAWS)
def test_draws_over_very_unequal_shards_follow_their_law(
    group: Group, name: str, locality: str
) -> None:
    sampler = LAWS[name]
    priorities = law_priorities(group.size).astype(np.float64)
    weights = priorities**sampler.alpha if isinstance(sampler, gear.Weighted) else priorities**0
    law = weights / weights.sum()
    ranks = group.arrays("law")
    total = np.zeros(LAW_STEPS, np.int64)
    for rank in ranks:
        drawn = rank[f"{name}/{locality}/numbers"] - 1
        assert len(drawn) == LAW_BATCH * LAW_BATCHES
        np.testing.assert_allclose(rank[f"{name}/{locality}/probabilities"], law[drawn], rtol=1e-5)
        counts = np.bincount(drawn, minlength=LAW_STEPS)
        total += counts
        if locality == "off":  # what one rank gets is a fair sample too
            assert follows(counts, law) > 0.001
    assert follows(total, law) > 0.001


def test_locality_changes_who_gets_a_draw_not_the_draws(group: Group) -> None:
    for name in LAWS:
        batches = {}
        for locality in ("first", "off"):
            by_rank = [rank[f"{name}/{locality}/numbers"] for rank in group.arrays("law")]
            shaped = [numbers.reshape(LAW_BATCHES, LAW_BATCH) for numbers in by_rank]
            batches[locality] = np.sort(np.concatenate(shaped, axis=1), axis=1)
        assert np.array_equal(batches["first"], batches["off"])


def test_a_rank_without_steps_is_fed_by_the_others(group: Group) -> None:
    shares = law_shares(group.size)
    owner = np.repeat(np.arange(group.size), shares)
    for rank, arrays in enumerate(group.arrays("law")):
        owners = owner[arrays["uniform/first/numbers"] - 1]
        if shares[rank] == 0:
            assert not np.any(owners == rank)
        elif shares[rank] > LAW_STEPS / 2:  # draws more than its share: keeps only its own
            assert np.all(owners == rank) or group.size == 2


@pytest.mark.parametrize("name", EPOCHS)
def test_an_epoch_has_each_of_1003_episodes_once(group: Group, name: str) -> None:
    sampler = EPOCHS[name]
    ranks = group.arrays("epochs")
    whole, rest = divmod(NUM_EPISODES, EPOCH_BATCH * group.size)
    num_batches = whole + (rest > 0 and not sampler.drop_last)
    firsts = np.arange(NUM_EPISODES) * 10 + 1
    orders = []
    for epoch in range(2):
        for number, rank in enumerate(ranks):
            assert rank[f"{name}/len"] == num_batches
            sizes = rank[f"{name}/{epoch}/sizes"].tolist()
            last = rest // group.size + (number < rest % group.size)
            assert sizes == [EPOCH_BATCH] * whole + [last] * (num_batches - whole)
        seen = np.concatenate([rank[f"{name}/{epoch}/numbers"] for rank in ranks])
        assert len(seen) == len(set(seen.tolist())) == NUM_EPISODES - rest * sampler.drop_last
        assert set(seen.tolist()) <= set(firsts.tolist())
        orders.append(ranks[0][f"{name}/{epoch}/numbers"])
        if not sampler.shuffle and sampler.drop_last:  # the first, in the order of the ranks
            order = np.argsort(epoch_owners(group.size), kind="stable")
            assert sorted(seen) == sorted(firsts[order[: len(seen)]])
    assert np.array_equal(*orders) == (not sampler.shuffle)


def test_a_queue_gives_each_step_once_oldest_first(group: Group) -> None:
    lengths = [(steps, steps // 2) for steps in QUEUE_LENGTHS[: group.size]]
    first = [rank * RANK_STRIDE + 1 for rank in range(group.size)]
    order: list[int] = []
    for turn in range(2):
        for rank, length in enumerate(lengths):
            start = first[rank] + sum(length[:turn])
            order += range(start, start + length[turn])
    ranks = group.arrays("queue")
    taken = 0
    for turn in itertools.count():
        got = [rank.get(f"{turn}/numbers") for rank in ranks]
        if got[0] is None:
            break
        numbers = np.concatenate(got).tolist()
        assert len(numbers) == min(3 * group.size, len(order) - taken)
        assert sorted(numbers) == sorted(order[taken : taken + len(numbers)])
        taken += len(numbers)
    assert taken == len(order)
    assert len({str(rank["end"]) for rank in ranks}) == 1
