"""A loader on the GPU draws the ids that the CPU's draws, to the bit, whatever happens between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numbered import SCHEMA, write
from places import as_numpy
from reference import difference
from script import Player, Script, scripts

import gear

SAMPLERS = [
    gear.Uniform(),
    gear.Uniform(unit="episode"),
    gear.Weighted(alpha=0.6, beta=0.4),
    gear.Weighted(alpha=1.0, beta=1.0),
    gear.Weighted(alpha=0.7, beta=0.5, unit="episode"),
    gear.Sequential(),
    gear.Sequential(unit="episode", drop_last=True),
    gear.Sequential(shuffle=False),
    gear.TopK(),
    gear.TopK(unit="episode"),
    gear.Fifo(),
    gear.Lifo(unit="episode"),
    gear.Weighted(alpha=0.6, beta=0.4, normalize="buffer"),
]
TIERS = ["pinned", "device"]


def assert_same(ours: gear.Batch, theirs: gear.Batch, where: object) -> None:
    """`theirs` is the CPU's. Importance weights go through pow(), which has no bits promised."""
    wrong = difference(as_numpy(ours.ids), theirs.ids)
    assert wrong is None, f"ids, {where}: {wrong}"
    wrong = difference(as_numpy(ours.probabilities), theirs.probabilities)
    assert wrong is None, f"probabilities, {where}: {wrong}"
    np.testing.assert_allclose(as_numpy(ours.weights), theirs.weights, 2e-6, err_msg=str(where))


def priorities_of(ids: np.ndarray, turn: int) -> np.ndarray:
    """Any numbers, the same for the same ids."""
    return ((ids * 2654435761 + turn * 97) % 4093).astype(np.float32) / 256


def loaders(
    gpu: Any, sampler: gear.Sampler, batch_size: int, *buffers: gear.ReplayBuffer
) -> list[gear.Loader]:
    """One over the first buffer to the GPU, one over the second to the CPU."""
    shared: dict[str, Any] = {"sampler": sampler, "outputs": {"number": gear.Step()}, "seed": 3}
    return [
        buffers[0].loader(batch_size, framework="torch", **shared, **gpu.to_gpu()),
        buffers[1].loader(batch_size, framework="numpy", **shared),
    ]


@pytest.mark.parametrize("batch_size", [1, 37, 256, 3000])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize("tier", TIERS)
def test_with_appends_evictions_and_updates_between(gpu, tier, sampler, batch_size) -> None:
    """Updates of the GPU's buffer are by tensors that live there."""
    import torch

    place = gpu.place(tier)
    with (
        place.buffer(SCHEMA, 4000, page_steps=8) as ours,
        gear.ReplayBuffer(SCHEMA, 4000, page_steps=8) as theirs,
    ):
        sides = [(ours, np.random.default_rng(1)), (theirs, np.random.default_rng(1))]
        next_number = 1
        lengths = [int(n) for n in np.random.default_rng(2).integers(1, 90, 60)]
        for buffer, rng in sides:
            after = write(buffer, next_number, lengths, rng)
        next_number = after
        one, other = loaders(gpu, sampler, batch_size, ours, theirs)
        epochs = isinstance(sampler, gear.Sequential)
        for turn in range(30):
            batch, expected = next(one, None), next(other, None)
            assert (batch is None) == (expected is None), f"epoch ends at batch {turn}"
            if batch is None or expected is None:
                continue
            assert_same(batch, expected, f"batch {turn}")
            # The last of equal ids wins; a batch of a random sampler repeats some.
            priorities = priorities_of(expected.ids, turn)
            tensor = torch.from_numpy(priorities).to(gpu.device)
            ours.update(batch.ids, tensor)
            theirs.update(expected.ids, priorities)
            if not epochs and turn % 3 == 2:
                for buffer, rng in sides:
                    after = write(buffer, next_number, [turn + 1, 70, 3], rng)
                next_number = after
        assert epochs or ours.stats()["steps_evicted"] > 0
        assert [(e.uid, e.priority) for e in ours.episodes()] == [
            (e.uid, e.priority) for e in theirs.episodes()
        ]
        for name in ("max_priority", "stale_updates", "steps_sampled", "saturated_weights"):
            assert ours.stats()[name] == theirs.stats()[name], name


@pytest.mark.parametrize("sampler", [SAMPLERS[0], SAMPLERS[2], SAMPLERS[5], SAMPLERS[8]], ids=repr)
@pytest.mark.parametrize("tier", TIERS)
def test_over_many_steps(gpu, tier, sampler) -> None:
    """Trees of several levels, none of them full."""
    schema = gear.Schema([gear.Column("number", (), "int64")])
    steps = 1_234_567
    with (
        gpu.place(tier).buffer(schema, steps) as ours,
        gear.ReplayBuffer(schema, steps) as theirs,
    ):
        for buffer in (ours, theirs):
            rng = np.random.default_rng(4)
            with buffer.writer() as writer:
                for first in range(0, steps, 100_000):
                    numbers = np.arange(first, min(first + 100_000, steps))
                    writer.extend(number=numbers, priority=rng.random(len(numbers), np.float32))
        one, other = loaders(gpu, sampler, 5000, ours, theirs)
        for turn in range(6):
            batch, expected = next(one), next(other)
            assert_same(batch, expected, f"batch {turn}")
            assert difference(as_numpy(batch["number"]), expected["number"]) is None
            if turn % 2 == 0:
                priorities = priorities_of(expected.ids, turn)
                ours.update(batch.ids, priorities)
                theirs.update(expected.ids, priorities)


@settings(max_examples=25)
@given(data=st.data(), script=scripts(max_calls=8))
def test_after_any_history(gpu, data: st.DataObject, script: Script) -> None:
    """The mirror of the index follows whatever writers do: appended to, ended, evicted."""
    tier = data.draw(st.sampled_from(TIERS))
    sampler = data.draw(st.sampled_from(SAMPLERS))
    batch_size = data.draw(st.integers(1, 40))
    column = script.columns[0].name
    stop = data.draw(st.integers(1, script.page_steps + 2))
    shared: dict[str, Any] = {"sampler": sampler, "outputs": {"out": gear.Window(0, stop, column)}}
    sizes = (script.schema(), script.capacity)
    with (
        gpu.place(tier).buffer(*sizes, **script.arguments()) as ours,
        gear.ReplayBuffer(*sizes, **script.arguments()) as theirs,
    ):
        players = [Player(script, buffer, script.model()) for buffer in (ours, theirs)]
        one = ours.loader(batch_size, framework="torch", **shared, **gpu.to_gpu())
        other = theirs.loader(batch_size, framework="numpy", **shared)
        for number, call in enumerate(script.calls):
            for player in players:
                player.play((call,))
            if number % 2 == 0:
                continue
            outcomes = []
            for loader in (one, other):
                try:
                    outcomes.append(next(loader, None))
                except gear.InvalidArgument as error:
                    outcomes.append(str(error))
            batch, expected = outcomes
            if "every priority is 0" in str(expected):
                return  # a GPU may say so a batch later, and has drawn another one by then
            if isinstance(expected, gear.Batch):
                assert_same(batch, expected, f"call {number}")
                assert difference(as_numpy(batch["out"]), expected["out"]) is None
            else:
                assert batch == expected


@pytest.mark.parametrize("sampler", [SAMPLERS[0], SAMPLERS[2], SAMPLERS[5]], ids=repr)
@pytest.mark.parametrize("back", [False, True], ids=["cpu to gpu", "gpu to cpu"])
def test_states_go_over_to_the_other_device(gpu, sampler, back: bool) -> None:
    with gpu.place("device").buffer(SCHEMA, 2000, page_steps=8) as buffer:
        write(buffer, 1, [17, 300, 41, 5] * 5, np.random.default_rng(0))

        def make(on_gpu: bool) -> gear.Loader:
            options = gpu.to_gpu() if on_gpu else {"device": "cpu"}
            return buffer.loader(50, sampler=sampler, framework="torch", seed=8, **options)

        whole, first, second = make(back), make(back), make(not back)
        expected = [next(whole) for _ in range(12)]
        for batch in expected[:5]:
            assert np.array_equal(as_numpy(next(first).ids), as_numpy(batch.ids))
        second.load_state_dict(first.state_dict())
        for batch in expected[5:]:
            got = next(second)
            assert np.array_equal(as_numpy(got.ids), as_numpy(batch.ids))
            for name in batch:
                assert difference(as_numpy(got[name]), as_numpy(batch[name])) is None
