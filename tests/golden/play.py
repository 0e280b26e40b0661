"""Plays a golden case, as one rank or as ranks that are threads of this process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from places import Tier

import gear
from golden.cases import Case
from golden.history import SCHEMA, History, learnt_priorities
from golden.parts import Hashes, Parts, of_all_ranks

TIMEOUT_S = 60.0
BATCHES = (3, 4)  # before and after the loader is restored from its state
HOST = Tier("host")
Said = TypeVar("Said")


def play(case: Case, tier: Tier = HOST) -> Hashes:
    """The case's hashes over all ranks."""
    return of_all_ranks(
        in_threads(case.ranks, case.ranks_per_node, lambda group: play_rank(case, tier, group))
    )


def in_threads(
    ranks: int, ranks_per_node: int, rank: Callable[[gear.Group | None], Said]
) -> list[Said]:
    """What each rank says; a single one has no group."""
    if ranks == 1:
        return [rank(None)]
    groups = gear.Group.loopback(ranks, ranks_per_node=ranks_per_node, timeout_s=TIMEOUT_S)
    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(rank, groups))


def play_rank(case: Case, tier: Tier, group: gear.Group | None) -> Hashes:
    """One rank's part; over a group, collective."""
    rank = 0 if group is None else group.rank
    with tier.kind()(SCHEMA, tier=tier.name, group=group, **case.buffer_arguments()) as buffer:
        history = History(buffer, rank)
        history.begin(case.halves)
        return draw(case, buffer, history)


def draw(case: Case, buffer: gear.ReplayBuffer, history: History) -> Hashes:
    """Draws batches, and updates and appends between them; restores the loader from its state in
    the middle, and changes beta there."""
    parts = Parts()

    def learn(loader: Any, turns: range) -> None:
        for turn in turns:
            batch = next(loader, None)
            parts.add_batch(batch, packed=case.outputs == "packed")
            if batch is not None:
                buffer.update(batch.ids, learnt_priorities(batch.ids, turn))
            if not case.epochs:
                history.write(9)
                history.update()

    def make_loader() -> Any:
        return buffer.loader(framework="numpy", **case.loader_arguments())

    before, after = BATCHES
    loader = make_loader()
    learn(loader, range(before))
    state = loader.state_dict()
    parts.add_state(state)
    loader.close()
    loader = make_loader()
    loader.load_state_dict(state)
    if case.law == "weighted":
        loader.beta = 0.75
    learn(loader, range(before, before + after))
    parts.add_state(loader.state_dict())
    loader.close()
    parts.add_buffer(buffer)
    return parts.hashes()
