"""Samplers, outputs and limits as values: what they take, compare and refuse by themselves."""

from __future__ import annotations

import dataclasses

import pytest

import gear

SAMPLERS = [gear.Uniform, gear.Weighted, gear.Sequential, gear.Fifo, gear.Lifo, gear.TopK]


@pytest.mark.parametrize("kind", SAMPLERS)
def test_samplers_are_values(kind: type[gear.Sampler]) -> None:
    assert kind() == kind(unit="step") != kind(unit="episode")
    assert hash(kind()) == hash(kind())
    assert kind(unit="episode").unit == "episode"
    with pytest.raises(dataclasses.FrozenInstanceError):
        kind().unit = "episode"
    for unit in ("frame", 0.7, None):
        with pytest.raises(gear.InvalidArgument, match=rf"{unit}.*'step'.*'episode'"):
            kind(unit=unit)


def test_sampler_options_have_these_defaults() -> None:
    assert gear.Weighted(0.7, 0.5) == gear.Weighted(alpha=0.7, beta=0.5)
    assert dataclasses.asdict(gear.Weighted()) == {
        "unit": "step",
        "alpha": 0.6,
        "beta": 0.4,
        "normalize": "batch",
    }
    sequential = dataclasses.asdict(gear.Sequential())
    assert sequential == {"unit": "step", "shuffle": True, "drop_last": False}


def test_outputs_are_values() -> None:
    assert gear.Step() == gear.Step(offset=0, column=None)
    assert gear.Window(-3, 1) == gear.Window(start=-3, stop=1, column=None, pad="both")
    with pytest.raises(dataclasses.FrozenInstanceError):
        gear.Step().offset = 1


def test_loader_refuses_what_is_no_sampler_of_gear() -> None:
    schema = gear.Schema([gear.Column("x")])
    with gear.ReplayBuffer(schema, 16) as buffer:
        for sampler in ("uniform", gear.Uniform, gear.Sampler(), 3):
            with pytest.raises(gear.InvalidArgument, match=r"(?s)sampler.*Uniform"):
                buffer.loader(1, sampler=sampler)
