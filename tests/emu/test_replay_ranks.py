"""Ranks as threads send what the formula says, within three standard errors; seeds are fixed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from emu.replaying_rank import ROW_BYTES, check_bytes, draw, on_threads, summed

import gear.emu as emu
from gear.emu.replay.rounds import Batch, bytes_deviation, expected, rounds

SHAPES = [
    pytest.param(emu.Shape(8), 64, 30, id="8 on one node"),
    pytest.param(emu.Shape(2, 4), 64, 30, id="8 on four nodes"),
    pytest.param(emu.Shape(8, 8), 64, 8, id="64", marks=[pytest.mark.slow, pytest.mark.nightly]),
    pytest.param(emu.Shape(8, 64), 32, 3, id="512", marks=[pytest.mark.slow, pytest.mark.nightly]),
]


@pytest.mark.parametrize("locality", ["first", "off"])
@pytest.mark.parametrize(("shape", "items", "batches"), SHAPES)
def test_threads_send_what_the_formula_says(shape, items, batches, locality) -> None:
    batch = Batch(shape, items, ROW_BYTES, locality)
    ranks = on_threads(shape.ranks, shape.per_node, lambda group: draw(group, batch, batches, 3))
    check_bytes(batch, ranks)
    all_, mean = summed(ranks), expected(batch)
    near_pairs, far_pairs = all_.near_pairs / batches, all_.far_pairs / batches
    # Of pairs an upper bound with locality first; else a mean, of a deviation below its root.
    beyond = 3 * math.sqrt(mean.far_pairs / batches) if locality == "off" else 0
    assert far_pairs <= mean.far_pairs + beyond
    mean = replace(mean, near_pairs=near_pairs, far_pairs=far_pairs)
    means = {one.name: one for one in rounds(batch, mean)}
    found = {call: told[2] / batches for call, told in all_.tallies.items()}
    assert found["allgather"] == means["agreement"].bytes + means["counts"].bytes
    error = bytes_deviation(batch)["parcels"] / math.sqrt(batches)
    assert abs(found["exchange"] - means["parcels"].bytes) <= 3 * error, (means, error)
