"""A batch of a group of many ranks: what was measured here, sent by formula, and held by curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from gear.emu.models.curve import BASES, Curve, Point, weaker
from gear.emu.models.shape import Shape
from gear.emu.replay.rounds import (
    COUNT,
    READY,
    Batch,
    Round,
    bytes_deviation,
    expected,
    most_of_a_rank,
    parcel_bytes,
    parcels_of,
    passes,
    rounds,
)

HEAD = ("ranks", "nodes", "draw ms", "gather ms", "messages", "bytes", "exchange ms", "batch ms")
BASIS = "basis: draw+gather, bytes, exchange"


@dataclass(frozen=True)
class Held:
    """A round, and what it takes.

    Args:
        round: what goes from ranks to others.
        seconds: by the curves, of the rank that has most to give or to get.
        basis: one of gear.emu.BASES.
    """

    round: Round
    seconds: float
    basis: str


@dataclass(frozen=True)
class Estimate:
    """What a batch takes on ranks of one shape: its parts one after the other, nothing hidden.

    Args:
        batch: what is drawn.
        draw_s: seconds of a rank's draws, measured.
        own_s: seconds of the rest that it does by itself with rows of its own, measured.
        rounds: of messages.
    """

    batch: Batch
    draw_s: float
    own_s: float
    rounds: tuple[Held, ...]

    @property
    def gather_s(self) -> float:
        """Seconds of what a rank does by itself but draw: rows that go by message are packed by
        their owner and unpacked where they come, so that they are copied once more."""
        return self.own_s * (1 + expected(self.batch).far / self.batch.draws)

    @property
    def messages(self) -> float:
        """That a rank gives, on the mean; of rows with locality first at most."""
        return sum(one.round.messages for one in self.rounds) / self.batch.shape.ranks

    @property
    def bytes(self) -> float:
        """Likewise."""
        return sum(one.round.bytes for one in self.rounds) / self.batch.shape.ranks

    @property
    def exchange_s(self) -> float:
        """Seconds of all rounds."""
        return sum(one.seconds for one in self.rounds)

    @property
    def batch_s(self) -> float:
        """Seconds of all."""
        return self.draw_s + self.gather_s + self.exchange_s

    @property
    def basis(self) -> str:
        """The least sure one of the rounds; empty: there is none."""
        return max((one.basis for one in self.rounds), key=BASES.index, default="")

    def as_json(self) -> dict[str, Any]:
        """Its figures by name, each with its basis."""
        shape, spread = self.batch.shape, bytes_deviation(self.batch)
        return {
            "ranks": shape.ranks,
            "nodes": shape.nodes,
            "draw": {"seconds": self.draw_s, "basis": "measured"},
            "gather": {
                "seconds": self.gather_s,
                "basis": "measured"
                if self.gather_s == self.own_s
                else "measured, scaled by formula",
            },
            "exchange": {
                "messages": self.messages,
                "bytes": self.bytes,
                "of": "a rank, on the mean",
                "bytes_basis": "by formula",
                "seconds": self.exchange_s,
                "basis": self.basis,
            },
            "rounds": [
                {
                    **asdict(one.round),
                    "of": "all ranks",
                    "bytes_deviation": spread[one.round.name],
                    "seconds": one.seconds,
                    "basis": one.basis,
                }
                for one in self.rounds
            ],
            "batch_s": self.batch_s,
        }


def estimate(batch: Batch, draw_s: float, own_s: float, curves: Mapping[str, Curve]) -> Estimate:
    """Of a batch, by curves of all_gather, all_to_all and send."""
    shape, most = batch.shape, most_of_a_rank(batch)
    messages = parcels_of(batch, most, shape.ranks - 1)
    held = []
    for one in rounds(batch, expected(batch)):
        if one.name == "parcels":
            takes = of_exchange(curves, shape, messages, parcel_bytes(batch, most, messages))
        else:
            takes = of_allgather(curves, shape, READY if one.name == "agreement" else COUNT)
        held.append(Held(one, takes.seconds, takes.basis))
    return Estimate(batch, draw_s, own_s, tuple(held))


def of_allgather(curves: Mapping[str, Curve], shape: Shape, each: int) -> Point:
    """What an allgather of so many bytes a rank takes; as csrc/transport/emulated.h has it."""
    among_all = curves["all_gather"].at(each * shape.ranks)
    in_turn = replace(among_all, seconds=0.0, low=None, high=None, basis=BASES[0])
    for turn in range(passes(shape.ranks)):
        one = curves["send"].at(min(1 << turn, shape.ranks - (1 << turn)) * each)
        in_turn = replace(
            in_turn,
            seconds=in_turn.seconds + one.seconds,
            basis=weaker(in_turn.basis, one.basis),
        )
    return min(in_turn, among_all, key=lambda point: point.seconds)


def of_exchange(curves: Mapping[str, Curve], shape: Shape, messages: float, size: float) -> Point:
    """The same of an exchange in which a rank gives so many bytes in so many messages."""
    others = shape.ranks - 1
    among_all = curves["all_to_all"].at(math.ceil(size + size / others))
    count = max(1.0, messages)
    if count >= others:
        return among_all
    each = curves["send"].at(round(size / count))
    in_turn = each.scaled(count, each.basis)
    return min(in_turn, among_all, key=lambda point: point.seconds)


def table(estimates: Sequence[Estimate]) -> str:
    """A line for each: messages and bytes are those that a rank gives, on the mean."""
    rows = [[*HEAD, BASIS]]
    for one in estimates:
        shape = one.batch.shape
        times = [f"{seconds * 1e3:.3f}" for seconds in (one.draw_s, one.gather_s)]
        sums = [f"{seconds * 1e3:.3f}" for seconds in (one.exchange_s, one.batch_s)]
        counts = [f"{one.messages:.0f}", f"{one.bytes:.0f}"]
        basis = f"measured, by formula, {one.basis}" if one.basis else "measured"
        rows.append([str(shape.ranks), str(shape.nodes), *times, *counts, *sums, basis])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([*map(str.rjust, row[:-1], widths), row[-1]]).rstrip() for row in rows
    )
