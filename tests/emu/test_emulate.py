"""Emulated transports: batches as without, counts to the byte, seconds as the curves say."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from emu.replaying_rank import ROW_BYTES, Drawn, check_bytes, draw, draw_by, on_threads, summed
from rank_processes import run_ranks

import gear
import gear.emu as emu
from gear.emu.replay.estimate import of_allgather, of_exchange
from gear.emu.replay.rounds import COUNT, LOCALITIES, READY, Batch
from gear.emu.transport import curves_of, shape_of

RANK = Path(__file__).with_name("replaying_rank.py")
SHAPES = [emu.Shape(1, 2), emu.Shape(3), emu.Shape(2, 3), emu.Shape(4, 2)]


@pytest.mark.parametrize("locality", LOCALITIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batches_are_the_same_and_bytes_are_those_of_the_formula(shape, locality) -> None:
    batch = Batch(shape, 40, ROW_BYTES, locality)
    ranks = on_threads(shape.ranks, shape.per_node, lambda group: draw(group, batch, 3, 5))
    check_bytes(batch, ranks)
    plain = on_threads(shape.ranks, shape.per_node, lambda group: draw_by(group, batch, 3, 5))
    assert [one.ids for one in ranks] == [one.ids for one in plain]
    assert summed(ranks).moved == summed(plain).moved


def test_seconds_are_those_of_the_formula() -> None:
    """Agreement and counts; a parcel takes what it gives or gets."""
    shape = emu.Shape(2, 2)
    batch = Batch(shape, 8, ROW_BYTES)
    curves = curves_of(emu.two_level, shape, emu.Links.load("hgx-h100"))
    for one in on_threads(4, 2, lambda group: draw(group, batch, 2, 1)):
        seconds = [of_allgather(curves, shape, each).seconds for each in (READY, COUNT)]
        assert math.isclose(one.tallies["allgather"][3], 2 * sum(seconds), rel_tol=1e-12)
        _, messages, size, seconds = one.tallies["exchange"]
        assert one.tallies["exchange"][0] == 2
        given = of_exchange(curves, shape, messages, size).seconds if messages else 0.0
        assert seconds >= 0.999 * given / 2  # of two batches; who gets more takes longer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "per_node"), [(2, 1), pytest.param(4, 2, marks=pytest.mark.nightly)]
)
def test_processes_send_what_threads_do(ranks, per_node) -> None:
    """The same draws, items and bytes, whatever carries them."""
    shape = emu.Shape(per_node, ranks // per_node)
    said = run_ranks(ranks, [per_node, 40, 3, 9, *LOCALITIES], program=RANK)
    for number, locality in enumerate(LOCALITIES):
        batch = Batch(shape, 40, ROW_BYTES, locality)
        processes = [Drawn(**one[number]) for one in said]
        check_bytes(batch, processes)
        # Each time the group's transports are emulated anew, of a buffer of its own.
        threads = on_threads(ranks, per_node, lambda group, of=batch: draw(group, of, 3, 9))
        assert processes == threads


def test_the_fullest_node_counts() -> None:
    groups = gear.Group.loopback(5, ranks_per_node=2)
    assert {shape_of(group) for group in groups} == {emu.Shape(2, 3)}


def test_wrong_links_and_models() -> None:
    (group,) = gear.Group.loopback(1)
    with pytest.raises(gear.InvalidArgument, match="links 'none' are neither ready ones"):
        emu.emulate(group, "none")
    with pytest.raises(gear.InvalidArgument, match="model 'fast': 'two_level'"):
        emu.emulate(group, model="fast")
    assert emu.emulate(group, holds=True).tallies()["read"]["calls"] == 0
