"""Ranks as threads send what the formula says, within three standard errors; seeds are fixed."""

from __future__ import annotations

import math

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
    all_, means = summed(ranks), {one.name: one for one in rounds(batch, expected(batch))}
    spread = bytes_deviation(batch)
    found = {call: told[2] / batches for call, told in all_.tallies.items()}
    assert found["allgather"] == means["agreement"].bytes + means["counts"].bytes
    told = {"rows": all_.far * ROW_BYTES / batches}
    told["parcels"] = found["exchange"] - told["rows"]
    for name, mean in means.items():
        if name in told:
            error = spread[name] / math.sqrt(batches)
            assert abs(told[name] - mean.bytes) <= 3 * error, (name, told[name], mean.bytes, error)
    # Of messages an upper bound with locality first; else a mean, of a deviation below its root.
    rows = all_.far_pairs / batches
    if shape.nodes > 1:
        most = means["rows"].messages
        assert rows <= most + (3 * math.sqrt(most / batches) if locality == "off" else 0)
