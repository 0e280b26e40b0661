"""The formulas of what a batch sends: of small ones by all outcomes, of large ones simulated."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import gear.emu as emu
from gear.emu.replay.rounds import (
    LOCALITIES,
    Batch,
    Moved,
    bytes_deviation,
    expected,
    mean_deviation,
    most_of,
    most_of_a_rank,
    rounds,
    surplus_deviation,
)
from gear.errors import InvalidArgument


@pytest.mark.parametrize(("draws", "parts"), [(2, 2), (12, 3), (40, 8), (600, 2), (35, 35)])
def test_the_mean_deviation_is_that_of_a_binomial_number(draws, parts) -> None:
    chances = [
        math.comb(draws, k) * Fraction(parts - 1) ** (draws - k) / Fraction(parts) ** draws
        for k in range(draws + 1)
    ]
    exact = sum(chance * abs(k - draws // parts) for k, chance in enumerate(chances))
    assert math.isclose(mean_deviation(draws, parts), exact, rel_tol=1e-10)
    assert mean_deviation(draws, 1) == 0


@pytest.mark.parametrize("locality", LOCALITIES)
@pytest.mark.parametrize("shape", [emu.Shape(2, 2), emu.Shape(3), emu.Shape(1, 3)], ids=str)
def test_what_moves_on_the_mean(shape, locality) -> None:
    """Of all outcomes of two draws a rank."""
    ranks, node = shape.ranks, [rank // shape.per_node for rank in range(shape.ranks)]
    batch = Batch(shape, 2, 16, locality)
    near = far = pairs = 0
    outcomes = list(itertools.product(range(ranks), repeat=batch.draws))
    for owners in outcomes:
        if locality == "off":
            moved = [(owner, i // 2) for i, owner in enumerate(owners) if owner != i // 2]
            far += sum(node[owner] != node[consumer] for owner, consumer in moved)
            near += sum(node[owner] == node[consumer] for owner, consumer in moved)
            pairs += len(set(moved))
            continue
        counts = np.bincount(owners, minlength=ranks)
        left = np.maximum(counts.reshape(-1, shape.per_node).sum(1) - 2 * shape.per_node, 0).sum()
        far += left
        near += np.maximum(counts - 2, 0).sum() - left
    mean = expected(batch)
    assert math.isclose(mean.near, near / len(outcomes), rel_tol=1e-9, abs_tol=1e-12)
    assert math.isclose(mean.far, far / len(outcomes), rel_tol=1e-9, abs_tol=1e-12)
    if locality == "off":
        assert math.isclose(mean.near_pairs + mean.far_pairs, pairs / len(outcomes), rel_tol=1e-9)


@pytest.mark.parametrize("shape", [emu.Shape(8, 8), emu.Shape(4, 2), emu.Shape(1, 2)], ids=str)
def test_deviations(shape) -> None:
    """Of 4000 batches, whose own error is below three per cent; normal numbers are near."""
    random = np.random.default_rng(4)
    ranks, items = shape.ranks, 64
    batch = Batch(shape, items, 1000)
    counts = random.multinomial(batch.draws, [1 / ranks] * ranks, size=4000)
    nodes = counts.reshape(-1, shape.nodes, shape.per_node).sum(2)
    moved = np.maximum(counts - items, 0).sum(1)
    far = np.maximum(nodes - items * shape.per_node, 0).sum(1)
    for parts, found in ((ranks, moved), (shape.nodes, far)):
        assert math.isclose(surplus_deviation(batch.draws, parts), found.std(), rel_tol=0.06)
    spread = bytes_deviation(batch)
    parcels = (36 * (moved - far) + 1024 * far).std()
    assert 0.94 * parcels <= spread["parcels"] <= 1.8 * parcels  # at most
    most, away = most_of_a_rank(batch), np.abs(counts - items).max(1)
    assert 0.9 * away.mean() <= most.near + most.far <= 1.4 * away.mean()
    owners = random.integers(ranks, size=(4000, ranks, items))
    elsewhere = owners // shape.per_node != np.arange(ranks)[:, None] // shape.per_node
    sent = (36 if shape.per_node > 1 else 24) * moved_near(owners, shape) + 1024 * elsewhere.sum(
        (1, 2)
    )
    off = bytes_deviation(Batch(shape, items, 1000, "off"))
    assert math.isclose(off["parcels"], sent.std(), rel_tol=0.06)


def moved_near(owners: np.ndarray, shape: emu.Shape) -> np.ndarray:
    """By batch: items that another rank of their owner's node consumes."""
    consumers = np.arange(shape.ranks)[:, None]
    same_node = owners // shape.per_node == consumers // shape.per_node
    return (same_node & (owners != consumers)).sum((1, 2))


@pytest.mark.parametrize(("parts", "mean"), [(2, 0.564), (10, 1.539), (100, 2.508)])
def test_the_largest_of_normal_numbers(parts, mean) -> None:
    assert math.isclose(most_of(parts), mean, rel_tol=0.05)
    assert most_of(1) == 0


def test_bytes_of_each_round() -> None:
    moved = Moved(near=10, far=6, near_pairs=4, far_pairs=3)
    told = {
        one.name: (one.messages, one.bytes) for one in rounds(Batch(emu.Shape(2, 3), 9, 48), moved)
    }
    assert told == {
        "agreement": (6 * 3, 30 * 40),
        "counts": (6 * 3, 30 * 8),
        "parcels": (7, 7 * 24 + 10 * (24 + 12) + 4 * 8 + 6 * (24 + 48)),
    }
    filled = rounds(Batch(emu.Shape(2, 3), 9, 20), moved)[-1]
    # one of 12, 8, 4 and 0 bytes
    assert filled.bytes == told["parcels"][1] - 6 * (48 - 20) + 3 * 6
    off = rounds(Batch(emu.Shape(2, 3), 9, 48, "off"), moved)[-1]
    assert (off.messages, off.bytes) == (30, told["parcels"][1] + (30 - 7) * 24)
    assert [
        one.name for one in rounds(Batch(emu.Shape(4), 9, 48), Moved(near=8, near_pairs=2))
    ] == [
        "agreement",
        "counts",
        "parcels",
    ]
    assert rounds(Batch(emu.Shape(1), 9, 48), Moved()) == ()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((0, 8, "first"), "items of a batch 0: 1 or more is allowed"),
        ((8, -1, "first"), "bytes of a row -1: 1 or more is allowed"),
        ((8, 8, "near"), "locality 'near': 'first' and 'off' are allowed"),
    ],
)
def test_batches_that_cannot_be(given, words) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Batch(emu.Shape(2), *given)
