"""Puzzles in a replay buffer: a puzzle is an episode, a step is one of its pairs."""

from __future__ import annotations

import numpy as np

import gear
from gear.train.config import Puzzles
from gear.train.tasks.puzzles.canvas import on_canvas
from gear.train.tasks.puzzles.sets import Sets


def outputs(config: Puzzles) -> dict[str, gear.Step | gear.Window]:
    """All pairs of a puzzle that is drawn as an episode, the first `config.pairs` of them."""
    pairs = gear.Window(0, config.pairs)
    return {"input": pairs, "output": pairs, "puzzle": gear.Step()}


def fill(sets: Sets, tier: str, group: gear.Group) -> gear.ReplayBuffer:
    """A buffer of the columns input, output (uint8 [most, most]) and puzzle (its number, int64);
    collective. Each rank makes and keeps its share: consecutive puzzles, so that draws from all
    shards are those from one."""
    side, pairs = sets.config.most, sets.config.pairs
    first, stop = (sets.size * rank // group.size for rank in (group.rank, group.rank + 1))
    mine = range(first, stop)
    columns = [
        gear.Column("input", (side, side), "uint8"),
        gear.Column("output", (side, side), "uint8"),
        gear.Column("puzzle", (), "int64"),
    ]
    buffer = gear.ReplayBuffer(
        gear.Schema(columns), len(mine) * pairs, tier=tier, page_steps=pairs, group=group
    )
    with buffer.writer() as writer:
        for number in mine:
            shown = sets.learned(number).pairs[:pairs]
            writer.extend(
                input=np.stack([on_canvas(given, side) for given, _ in shown]),
                output=np.stack([on_canvas(wanted, side) for _, wanted in shown]),
                puzzle=np.full(len(shown), number),
            )
            writer.end_episode()
    return buffer
