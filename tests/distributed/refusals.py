"""What ranks must agree on: where one of them differs, all raise the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numbered
import numpy as np

import gear
from distributed.content import SCHEMA
from distributed.participant import Participant

OTHER_SCHEMA = gear.Schema([*SCHEMA.columns[:-1], gear.Column("done", (), "uint8")])
# What the last rank says, beside what the others say.
BUFFERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "schema": ({"schema": OTHER_SCHEMA}, {"schema": SCHEMA}),
    "page_steps": ({"page_steps": 8}, {"page_steps": 4}),
}
LOADERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "batch_size": ({"batch_size": 6}, {"batch_size": 5}),
    "seed": ({"seed": 6}, {"seed": 5}),
    "sampler": ({"sampler": gear.Weighted()}, {"sampler": gear.Uniform()}),
    "alpha": ({"sampler": gear.Weighted(alpha=0.5)}, {"sampler": gear.Weighted(alpha=0.6)}),
    "unit": ({"sampler": gear.Uniform(unit="episode")}, {"sampler": gear.Uniform()}),
    "locality": ({"locality": "off"}, {"locality": "first"}),
    "outputs": ({"outputs": {"obs": gear.Step(1)}}, {"outputs": {"obs": gear.Step()}}),
    "packed": ({"packed": True}, {"packed": False}),
    "prefetch": ({"prefetch": 3}, {"prefetch": 2}),
}
# The same, but what the last rank says is wrong by itself.
WRONG: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "column": ({"outputs": {"x": gear.Step(column="column")}}, {"outputs": {"obs": gear.Step()}}),
    "window": ({"outputs": {"obs": gear.Window(2, 2)}}, {"outputs": {"obs": gear.Step()}}),
}


Attempts = dict[str, Callable[[Participant], object]]


def differing(pairs: dict[str, tuple[Any, Any]], make: Callable[..., object]) -> Attempts:
    return {
        name: lambda me, pair=pair: make(me, pair[me.rank != me.size - 1])
        for name, pair in pairs.items()
    }


def attempts() -> dict[str, Attempts]:
    """By program. Those of a program that end differently on two ranks end it."""
    return {
        "refuse_buffers": differing(BUFFERS, make_buffer),
        "refuse_loaders": differing(LOADERS, make_loader),
        "refuse_wrong": differing(WRONG, make_loader),
        "refuse_draws": {
            "empty": sample_nothing,
            "by_chance": lambda me: make_loader(me, {}, max_times_sampled=2),
        },
        # Of no rank; of the last rank, but beyond its pages; a priority that no rank would take.
        "refuse_updates": {
            "owner": lambda me: update(me, 4000, 0, 1.0),
            "slot": lambda me: update(me, me.size - 1, 1 << 31, 1.0),
            "priority": lambda me: update(me, me.size - 1, 0, float("nan")),
        },
        "refuse_loads": {
            "saved_by_one": lambda me: load_other(me, alone=True),
            "saved_by_all": lambda me: load_other(me, alone=False),
            "missing": lambda me: gear.ReplayBuffer.load("/nowhere/replay", group=me.group()),
        },
        "refuse_saves": {"unwritable": lambda me: save(me, "/dev/null/replay")},
    }


# One rank has nobody to differ from.
NEED_OTHERS = {*BUFFERS, *LOADERS, *WRONG, "by_chance", "saved_by_one", "saved_by_all"}


def play_refusals(program: str, me: Participant) -> None:
    for name, attempt in attempts()[program].items():
        if me.size == 1 and name in NEED_OTHERS:
            continue
        try:
            attempt(me)
            me.record(name, ["nothing", ""])
        except (gear.GearError, ValueError) as error:
            me.record(name, [type(error).__name__, str(error)])
        # All are still in step, and the group is good for more.
        assert me.group().exchange(name) == [name] * me.size


def make_buffer(me: Participant, arguments: dict[str, Any]) -> None:
    me.buffer(**{"schema": SCHEMA, "capacity": 64, "page_steps": 4} | arguments).close()


def make_loader(me: Participant, arguments: dict[str, Any], **more: Any) -> None:
    with me.buffer(SCHEMA, 64, page_steps=4, **more) as buffer:
        with buffer.writer() as writer:
            writer.extend(**numbered.rows(np.arange(1, 10)))
        me.loader(buffer, **{"batch_size": 5} | arguments).close()


def sample_nothing(me: Participant) -> None:
    with me.buffer(SCHEMA, 64, page_steps=4) as buffer, me.loader(buffer, 5) as loader:
        next(loader)


def update(me: Participant, owner: int, slot: int, priority: float) -> None:
    """What is wrong is said where it is given, and harms no other rank."""
    with me.buffer(SCHEMA, 64, page_steps=4) as buffer:
        with buffer.writer() as writer:
            writer.extend(**numbered.rows(np.arange(1, 10)))
        with me.loader(buffer, 5) as loader:
            next(loader)
            try:
                buffer.update(np.array([owner << 50 | slot]), np.array([priority]))
            finally:
                for _ in range(4):
                    next(loader)


def save(me: Participant, path: str) -> None:
    with me.buffer(SCHEMA, 64, page_steps=4) as buffer:
        buffer.save(path)


def load_other(me: Participant, *, alone: bool) -> None:
    """A checkpoint of one rank by all of them, or the other way round."""
    path = me.shared_folder("alone" if alone else "together")
    group, other = me.group(), gear.Group.single()
    if alone:
        if me.rank == 0:
            with gear.ReplayBuffer(SCHEMA, 64, page_steps=4) as buffer:
                buffer.save(path)
        group.barrier()
        group, other = other, group
    else:
        with me.buffer(SCHEMA, 64, page_steps=4) as buffer:
            buffer.save(path)
    gear.ReplayBuffer.load(path, group=other).close()
