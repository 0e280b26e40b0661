"""Batches large enough to be split over threads hold what small ones hold, drawn one by one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gear

RANKS = 2
Array = np.ndarray[Any, np.dtype[Any]]
LARGE = 24_000
SMALL = LARGE // 12
STEPS = 40_000  # of the fuller rank: more in all than a loop of draws takes
OUTPUTS: dict[str, gear.Step | gear.Window] = {
    "x": gear.Step(),
    "window": gear.Window(-2, 3, column="x"),
}


def filled_buffer(group: gear.Group) -> gear.ReplayBuffer:
    schema = gear.Schema([gear.Column("x", (3,), "float32")])
    buffer = gear.ReplayBuffer(schema, 2 * STEPS, page_steps=64, group=group)
    random = np.random.default_rng(group.rank)
    steps = STEPS * (group.rank + 1) // RANKS
    rows = random.standard_normal((steps, 3), dtype=np.float32)
    with buffer.writer() as writer:
        for first in range(0, steps, 500):
            priorities = random.random(len(rows[first : first + 500]), dtype=np.float32)
            writer.extend(x=rows[first : first + 500], priority=priorities)
            writer.end_episode(terminated=True)
    return buffer


def draws(buffer: gear.ReplayBuffer, sampler: Any, batch_size: int) -> dict[str, list[Array]]:
    """What this rank received, tensor by tensor, a batch an entry."""
    received: dict[str, list[Array]] = {}
    with buffer.loader(
        batch_size, outputs=OUTPUTS, sampler=sampler, seed=3, framework="numpy", locality="off"
    ) as loader:
        for _ in range(LARGE // batch_size):
            batch = next(loader)
            tensors = {**batch, "ids": batch.ids, "probabilities": batch.probabilities}
            for name, tensor in tensors.items():
                received.setdefault(name, []).append(np.array(tensor))
    return received


@pytest.mark.parametrize("ranks_per_node", [RANKS, 1])
@pytest.mark.parametrize(
    "sampler",
    [
        gear.Uniform(),
        gear.Weighted(alpha=0.7),
        gear.Sequential(shuffle=False),
        gear.Sequential(shuffle=True),
    ],
    ids=["uniform", "weighted", "in_order", "shuffled"],
)
def test_a_large_batch_holds_the_draws_of_small_ones(sampler: Any, ranks_per_node: int) -> None:
    groups = gear.Group.loopback(RANKS, ranks_per_node=ranks_per_node, timeout_s=60)
    with ThreadPoolExecutor(RANKS) as everybody:

        def on_every_rank(work: Callable[[gear.Group], Any]) -> list[Any]:
            return list(everybody.map(work, groups))

        buffers = on_every_rank(filled_buffer)
        large = on_every_rank(lambda group: draws(buffers[group.rank], sampler, LARGE))
        small = on_every_rank(lambda group: draws(buffers[group.rank], sampler, SMALL))
        on_every_rank(lambda group: buffers[group.rank].close())
        on_every_rank(lambda group: group.close())
    assert set(OUTPUTS) < set(large[0])
    for name in large[0]:
        whole = np.concatenate([one[name][0] for one in large])
        in_turn = zip(*(one[name] for one in small), strict=True)
        parts = [part for batch in in_turn for part in batch]
        np.testing.assert_array_equal(whole, np.concatenate(parts), err_msg=name)
