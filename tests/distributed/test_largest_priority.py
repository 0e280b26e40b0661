"""New steps without a priority of their own take the largest that any rank has seen (Schaul et al.,
2016, say: so that each is drawn once)."""

from __future__ import annotations

import threading
import time
from typing import Any

import numbered
import numpy as np
import pytest

import gear
from distributed.test_other_ranks import STRIDE, on_ranks, steps_of


@pytest.mark.parametrize("ranks", [2, 3])
def test_of_all_ranks_since_the_last_draw(ranks: int) -> None:
    def priorities_of_new_steps(group: gear.Group) -> Any:
        buffer = gear.ReplayBuffer(numbered.SCHEMA, 96, page_steps=4, group=group)

        def write(first: int, **priority: Any) -> None:
            numbers = np.arange(first, first + 4) + group.rank * STRIDE
            with buffer.writer() as writer:
                writer.extend(**priority, **numbered.rows(numbers))
                writer.end_episode(terminated=True)

        def new_ones(first: int) -> list[float]:
            write(first)
            found = steps_of(buffer)
            return [found[first + group.rank * STRIDE + step][-1] for step in range(4)]

        write(1, priority=np.full(4, 2 + 5 * (group.rank == 1), np.float32))
        loader = buffer.loader(
            4,
            sampler=gear.Weighted(alpha=1.0),
            outputs={"number": gear.Step()},
            framework="numpy",
            seed=4,
        )
        before = new_ones(11)
        next(loader)
        return before, new_ones(21)

    found = on_ranks(ranks, priorities_of_new_steps)
    assert [before for before, _ in found] == [[7.0 if r == 1 else 2.0] * 4 for r in range(ranks)]
    assert [after for _, after in found] == [[7.0] * 4] * ranks


def test_that_grows_while_ranks_draw() -> None:
    """A larger one that comes between an offer and its draw does not change what was offered."""
    ranks, batches = 2, 1500
    groups = gear.Group.loopback(ranks)
    schema = gear.Schema([gear.Column("x", (), "int32")])
    sampler = gear.Weighted(alpha=4.0, beta=1.0)
    done = threading.Event()
    failures: list[BaseException] = []

    def write(buffer: gear.ReplayBuffer, growth: float) -> None:
        writer, priority = buffer.writer(), 1e-37
        while not done.is_set() and priority < 1e37:
            priority *= growth
            writer.append(x=1, priority=priority)
            time.sleep(2e-5)

    def draw(rank: int) -> None:
        group = groups[rank]
        with gear.ReplayBuffer(schema, 8192, page_steps=64, group=group) as buffer:
            with buffer.writer() as writer:
                writer.extend(x=np.zeros(64, np.int32), priority=np.full(64, 1e-37, np.float32))
            loader = buffer.loader(
                64, sampler=sampler, framework="numpy", prefetch=0, seed=1, timeout_s=30
            )
            other = threading.Thread(target=write, args=(buffer, 1.03 - 0.001 * rank))
            other.start()
            try:
                for _ in range(batches):
                    assert (next(loader).probabilities > 0).all()
                group.barrier()  # nobody's pages are read any more
            except BaseException as error:  # noqa: BLE001 - for the thread of the test
                failures.append(error)
            finally:
                done.set()
                other.join()

    threads = [threading.Thread(target=draw, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
