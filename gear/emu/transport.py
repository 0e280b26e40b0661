"""Transports that count what goes by them, and what it takes on other links."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from typing import Any

from gear import _core
from gear.distributed import Group
from gear.emu.models.curve import BASES, Curve
from gear.emu.models.links import Links
from gear.emu.models.model import Model, ask
from gear.emu.models.model import model as named
from gear.emu.models.shape import Shape

OPERATIONS = ("all_gather", "all_to_all", "send")  # that the calls of a transport are taken for


def emulate(
    group: Group,
    links: Links | str | os.PathLike[str] = "hgx-h100",
    model: Model | str | os.PathLike[str] = "two_level",
    *,
    holds: bool = False,
) -> _core.Traffic:
    """Counts what goes by the transports that `group` makes from here on, and what that takes.

    Buffers made over the group afterwards, and their loaders, send by such transports. What they
    get is what they would have got: the transports beneath carry all as before. Each rank counts
    what it gives; nothing here is collective.

    Args:
        links: numbers, or the name or file of some, as `Links.load` takes it.
        model: as `gear.emu.model` takes it; asked for how the ranks lie on nodes, of which the
            fullest counts.
        holds: each call takes as long as the model says, and what the transport beneath takes; else
            its seconds are counted alone.

    Returns:
        The counts of this rank. ``tallies()`` gives calls, messages, bytes and seconds, the latter
        by `BASES`, of each kind of call: ``"allgather"``, ``"exchange"``, ``"read"`` (of memory of
        other ranks) and ``"duplicate"``.

    Raises:
        InvalidArgument: as `Links.load`, `model` and the model itself.
    """
    loaded = links if isinstance(links, Links) else Links.load(links)
    shape = shape_of(group)
    curves = curves_of(named(model), shape, loaded)
    points: dict[str, Any] = {name: _points(curve) for name, curve in curves.items()}
    traffic = _core.Traffic()
    group.wrap_transports(partial(_core.emulated_transport, traffic=traffic, holds=holds, **points))
    return traffic


def shape_of(group: Group) -> Shape:
    """How the ranks of a group lie on nodes; the fullest node counts."""
    counts = Counter(group.nodes)
    return Shape(max(counts.values()), len(counts))


def curves_of(asked: Model, shape: Shape, links: Links) -> dict[str, Curve]:
    """What a transport's calls take, by the operations that they are taken for."""
    if shape.ranks == 1:
        return dict.fromkeys(OPERATIONS, Curve.of([(0, 0.0), (1, 0.0)], "given"))
    return {operation: ask(asked, operation, shape, links) for operation in OPERATIONS}


def _points(curve: Curve) -> tuple[list[int], list[float], list[int]]:
    return (
        [point.bytes for point in curve.points],
        [point.seconds for point in curve.points],
        [BASES.index(point.basis) for point in curve.points],
    )
