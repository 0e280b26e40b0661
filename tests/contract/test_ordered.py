"""Samplers that leave nothing to chance, against the reference; and which steps are offered."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from script import Player, Script, check_batch, scripts

import gear

pytestmark = pytest.mark.subject("library")

EPISODE_BIT = 1 << 62
SLOT_BITS = (1 << 32) - 1
UNITS = st.sampled_from(["step", "episode"])


def expected_ids(player: Player, unit: str) -> dict[int, tuple]:
    """id -> anchor of everything on offer, in content order."""
    ids = player.remember()
    bit = EPISODE_BIT if unit == "episode" else 0
    return {ids[e.uid, t] | bit: (e, t) for e, t in player.model.anchors(unit)}


def reach(draw, player: Player) -> dict[str, gear.Window]:
    """An output that looks ahead, so that open episodes hold steps back."""
    stop = draw(st.integers(1, player.script.capacity + 1))
    start = draw(st.integers(-player.script.capacity, stop - 1))
    player.model.require_lookahead([(start, stop)])
    return {"out": gear.Window(start, stop, player.script.columns[0].name)}


@settings(max_examples=80)
@given(data=st.data(), script=scripts(max_calls=8), unit=UNITS)
def test_fifo_lifo_topk(tier, data: st.DataObject, script: Script, unit: str) -> None:
    with tier.buffer(script.schema(), script.capacity, **script.arguments()) as buffer:
        player = Player(script, buffer, script.model())
        half = len(script.calls) // 2
        for calls in (script.calls[:half], script.calls[half:]):
            player.play(calls)
            outputs = reach(data.draw, player)
            batch_size = data.draw(st.integers(1, len(player.model) + 2))
            priority = (lambda e, t: e.priorities[t]) if unit == "step" else lambda e, _: e.priority
            for sampler in (gear.Fifo(unit=unit), gear.Lifo(unit=unit), gear.TopK(unit=unit)):
                with buffer.loader(
                    batch_size, sampler=sampler, outputs=outputs, framework="numpy"
                ) as loader:
                    anchors = expected_ids(player, unit)
                    order = list(anchors)
                    if isinstance(sampler, gear.Lifo):
                        order.reverse()
                    elif isinstance(sampler, gear.TopK):
                        order.sort(key=lambda i: (-priority(*anchors[i]), i & SLOT_BITS))
                    if not order:
                        with pytest.raises(gear.InvalidArgument):
                            next(loader)
                        continue
                    batch = next(loader)
                    assert batch.ids.tolist() == order[:batch_size]
                    assert batch.weights.tolist() == [1.0] * batch.size
                    chosen = [anchors[i] for i in order[:batch_size]]
                    check_batch(player.model, batch, chosen, outputs, packed=False)


@settings(max_examples=60)
@given(
    data=st.data(),
    script=scripts(max_calls=8),
    unit=UNITS,
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    packed=st.booleans(),
    prefetch=st.integers(1, 4),
)
def test_sequential(
    tier, data: st.DataObject, script: Script, unit: str, shuffle, drop_last, packed, prefetch
) -> None:
    with tier.buffer(script.schema(), script.capacity, **script.arguments()) as buffer:
        player = Player(script, buffer, script.model())
        player.play(script.calls)
        outputs = reach(data.draw, player)
        batch_size = data.draw(st.integers(1, len(player.model) + 2))
        sampler = gear.Sequential(unit=unit, shuffle=shuffle, drop_last=drop_last)
        loader = buffer.loader(
            batch_size,
            sampler=sampler,
            outputs=outputs,
            packed=packed,
            framework="numpy",
            prefetch=prefetch,
        )
        anchors = expected_ids(player, unit)
        if not anchors:
            return
        num_batches, rest = divmod(len(anchors), batch_size)
        assert len(loader) == num_batches + (rest > 0 and not drop_last)
        epochs = []
        for _ in range(3):
            ids = []
            for batch in loader:
                assert batch.size == batch_size or (not drop_last and batch.size == rest)
                np.testing.assert_allclose(batch.probabilities, 1 / len(anchors), 1e-6)
                chosen = [anchors[i] for i in batch.ids.tolist()]
                check_batch(player.model, batch, chosen, outputs, packed)
                ids += batch.ids.tolist()
            assert len(ids) == len(set(ids)) == len(anchors) - (rest if drop_last else 0)
            epochs.append(ids)
        if not shuffle:
            assert epochs == [list(anchors)[: len(epochs[0])]] * 3
        loader.close()


def test_each_epoch_is_shuffled_afresh(tier) -> None:
    schema = gear.Schema([gear.Column("x", (), "int32")])
    with tier.buffer(schema, 512) as buffer:
        with buffer.writer() as writer:
            writer.extend(x=np.arange(500, dtype=np.int32))
        loaders = [
            buffer.loader(50, sampler=gear.Sequential(), framework="numpy", seed=seed)
            for seed in (0, 0, 1)
        ]
        epochs = [
            [np.concatenate([b["x"] for b in loader]) for _ in range(3)] for loader in loaders
        ]
        for orders in epochs:
            assert all(sorted(order) == list(range(500)) for order in orders)
            assert all((order != np.arange(500)).mean() > 0.9 for order in orders)
            assert (orders[0] != orders[1]).mean() > 0.9
            assert (orders[1] != orders[2]).mean() > 0.9
        assert np.array_equal(epochs[0], epochs[1])
        assert (epochs[0][0] != epochs[2][0]).mean() > 0.9


@pytest.mark.parametrize("prefetch", [1, 2, 4])
def test_appending_within_an_epoch_gives_it_up(tier, prefetch: int) -> None:
    """An epoch over a moving buffer could not deliver each step once; the next one is whole."""
    schema = gear.Schema([gear.Column("x", (), "int32")])
    with tier.buffer(schema, 512) as buffer, buffer.writer() as writer:
        writer.extend(x=np.arange(100, dtype=np.int32))
        loader = buffer.loader(10, sampler=gear.Sequential(), framework="numpy", prefetch=prefetch)
        next(loader)
        writer.extend(x=np.arange(100, 150, dtype=np.int32))
        with pytest.raises(gear.InvalidArgument, match=r"changed.*epoch.*100.*150"):
            list(loader)
        assert sorted(x for batch in loader for x in batch["x"]) == list(range(150))
        writer.append(x=150)
        assert sorted(x for batch in loader for x in batch["x"]) == list(range(151))
