"""Loaders without a seed: each draws for itself, and a program that is run again draws the same."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gear

SCHEMA = gear.Schema([gear.Column("x", (), "int32")])
SAMPLERS = [gear.Uniform(), gear.Weighted(), gear.Sequential()]


def fill(buffer: gear.ReplayBuffer) -> None:
    with buffer.writer() as writer:
        writer.extend(x=np.arange(100, dtype=np.int32))


def drawn(loader: gear.Loader, batches: int = 3) -> list[list[int]]:
    return [next(loader)["x"].tolist() for _ in range(batches)]


def loaders(buffer: gear.ReplayBuffer, sampler: gear.Sampler, count: int) -> list[gear.Loader]:
    return [buffer.loader(16, sampler=sampler, framework="numpy") for _ in range(count)]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_no_two_draw_alike_and_a_second_run_does(tier, sampler: gear.Sampler) -> None:
    runs = []
    for _ in range(2):
        with tier.buffer(SCHEMA, 128, page_steps=4) as buffer:
            fill(buffer)
            made = loaders(buffer, sampler, 4)
            runs.append([(one.seed, drawn(one)) for one in made])
            for one, (seed, batches) in zip(made, runs[-1], strict=True):
                assert one.state_dict()["seed"] == seed
                with buffer.loader(16, sampler=sampler, framework="numpy", seed=seed) as same:
                    assert drawn(same) == batches
    assert runs[0] == runs[1]
    assert runs[0][0][0] == 0
    assert len({seed for seed, _ in runs[0]}) == 4
    assert len({str(batches) for _, batches in runs[0]}) == 4


def test_a_seed_that_is_given_takes_none(tier) -> None:
    with tier.buffer(SCHEMA, 128, page_steps=4) as buffer:
        fill(buffer)
        first = buffer.loader(16, framework="numpy", seed=9)
        assert (first.seed, buffer.loader(16, framework="numpy").seed) == (9, 0)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_loader_takes_over_the_seed_of_a_state(tier, tmp_path: Path, sampler) -> None:
    """Those that a loaded buffer gives are others than those of before; a state brings its own."""
    with tier.buffer(SCHEMA, 128, page_steps=4) as buffer:
        fill(buffer)
        before = loaders(buffer, sampler, 3)
        for one in before:
            drawn(one)
        buffer.save(tmp_path / "replay")
        states = [copy.deepcopy(one.state_dict()) for one in before]
        expected = [drawn(one) for one in before]
        seeds = [one.seed for one in before]
    with tier.load(tmp_path / "replay") as buffer:
        after = loaders(buffer, sampler, 3)
        assert not {one.seed for one in after} & set(seeds)
        for one in after:
            drawn(one, 2)
        for one, state in zip(after, states, strict=True):
            one.load_state_dict(state)
        assert [one.seed for one in after] == seeds
        assert [one.state_dict()["seed"] for one in after] == seeds
        assert [drawn(one) for one in after] == expected


def test_a_seed_is_taken_over_with_its_draws_of_a_queue(tier) -> None:
    """What the loader had in flight before is given back, that of the state is taken."""
    with tier.buffer(SCHEMA, 128, page_steps=4, max_times_sampled=1) as buffer:
        fill(buffer)
        kind: dict[str, Any] = {"sampler": gear.Fifo(), "framework": "numpy", "prefetch": 1}
        with buffer.loader(10, **kind) as first:
            assert drawn(first, 1) == [list(range(10))]
            state = copy.deepcopy(first.state_dict())
        second = buffer.loader(10, **kind)
        assert drawn(second, 1) == [list(range(10, 20))]
        assert second.seed != state["seed"]
        second.load_state_dict(state)
        assert second.seed == state["seed"]
        assert drawn(second, 3) == [list(range(k, k + 10)) for k in (10, 20, 30)]


def test_a_refused_state_leaves_the_seed(tier) -> None:
    with tier.buffer(SCHEMA, 128, page_steps=4) as buffer:
        fill(buffer)
        first, second = loaders(buffer, gear.Uniform(), 2)
        state, seed = first.state_dict(), second.seed
        for torn in ({**state, "draws": -1}, {**state, "batch_size": 3}):
            with pytest.raises(gear.InvalidArgument, match="loader state"):
                second.load_state_dict(torn)
        assert second.seed == seed
