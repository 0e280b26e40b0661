"""A run's life on every rank: it learns, is saved and resumed, waits, and writes while it reads."""

from __future__ import annotations

import threading

import numbered
import numpy as np

import gear
from distributed.content import RANK_STRIDE, SCHEMA, StoredShard, updated_priorities
from distributed.participant import Participant
from distributed.scenarios import Scenario
from distributed.single_rank import arrays_of

NUMBER = {"anchor": gear.Step(column="number")}

# ---- resuming ----

RESUMED: dict[str, gear.Sampler] = {
    "uniform": gear.Uniform(),
    "weighted": gear.Weighted(alpha=0.7, beta=0.5),
    "weighted-episodes": gear.Weighted(unit="episode"),
    "shuffled": gear.Sequential(),
    "fifo": gear.Fifo(),
    "topk": gear.TopK(),
}
RESUMED_OUTPUTS = {
    "anchor": gear.Step(column="number"),
    "obs": gear.Window(-2, 3),
    "done": gear.Window(0, 4, pad="tail"),
}
RESUMED_BEFORE, RESUMED_AFTER = 4, 9


def play_resume(me: Participant) -> None:
    """Goes on, from a checkpoint of buffer and loader, beside the run that was not interrupted."""
    for name, sampler in RESUMED.items():
        moving = not isinstance(sampler, gear.Sequential)
        scenario = Scenario(name, sampler)
        story = scenario.story.of(me.rank)

        def make_loader(buffer: gear.ReplayBuffer, sampler: gear.Sampler = sampler) -> gear.Loader:
            return me.loader(
                buffer, 6, sampler=sampler, outputs=RESUMED_OUTPUTS, prefetch=2, seed=8
            )

        with me.buffer(SCHEMA, 160, page_steps=4, several_nodes=True) as buffer:
            shard = StoredShard(buffer)
            shard.play(next(story))
            loader = make_loader(buffer)
            learn(me, buffer, loader, range(RESUMED_BEFORE), moving)
            buffer.save(me.shared_folder(name))
            state = loader.state_dict()
            learn(me, buffer, loader, range(RESUMED_BEFORE, RESUMED_AFTER), moving, f"{name}/whole")
            loader.close()
        with gear.ReplayBuffer.load(
            me.shared_folder(name), group=me.group(several_nodes=True), tier=me.tier("host")
        ) as buffer:
            loader = make_loader(buffer)
            loader.load_state_dict(state)
            learn(me, buffer, loader, range(RESUMED_BEFORE, RESUMED_AFTER), moving, f"{name}/rest")
            loader.close()


def learn(
    me: Participant,
    buffer: gear.ReplayBuffer,
    loader: gear.Loader,
    turns: range,
    moving: bool,
    where: str | None = None,
) -> None:
    """A batch a turn, its priorities updated, and where `moving`, a fresh episode stored."""
    for turn in turns:
        batch = next(loader, None)
        if batch is None:
            continue
        if where is not None:
            for name, array in arrays_of(batch, packed=False).items():
                me.record(f"{where}/{turn}/{name}", array)
        buffer.update(batch.ids, updated_priorities(batch["anchor"], turn))
        if moving:
            first = RANK_STRIDE * (me.rank + 1) - 1000 + 20 * turn
            with buffer.writer() as writer:
                rows = numbered.rows(np.arange(first, first + 5 + me.rank))
                writer.extend(priority=np.full(5 + me.rank, 0.5), **rows)


# ---- a queue ----

QUEUE_LENGTHS = (9, 4, 0, 13)


def play_queue(me: Participant) -> None:
    """max_times_sampled=1: every step comes once, the oldest episodes first."""
    with me.buffer(
        SCHEMA, 200, page_steps=4, max_times_sampled=1, tier="shared", several_nodes=True
    ) as buffer:
        number = me.rank * RANK_STRIDE + 1
        for length in (QUEUE_LENGTHS[me.rank], QUEUE_LENGTHS[me.rank] // 2):
            if length:
                with buffer.writer() as writer:
                    writer.extend(**numbered.rows(np.arange(number, number + length)))
                number += length
        with me.loader(buffer, 3, sampler=gear.Fifo(), outputs=NUMBER, prefetch=0) as loader:
            for turn in range(100):
                try:
                    batch = next(loader)
                except gear.InvalidArgument as error:
                    me.record("end", str(error))
                    break
                me.record(f"{turn}/numbers", batch["anchor"])


# ---- writers against readers ----


def play_pressure(me: Participant) -> None:
    """A writer on every rank that stores far more than there is room for, that of rank 0 most,
    while all ranks draw what the others map: neither may wait for the other for ever."""
    for tier in ("shared", "host"):
        with me.buffer(SCHEMA, 120, page_steps=4, tier=tier) as buffer:
            with buffer.writer() as writer:
                first = (me.rank + 1) * RANK_STRIDE - 100
                writer.extend(**numbered.rows(np.arange(first, first + 50)))
            outputs = numbered.outputs(-2, 3)
            with me.loader(buffer, 16, outputs=outputs, prefetch=3) as loader:
                rounds = 400 if me.rank == 0 else 60
                thread = threading.Thread(
                    target=write_episodes, args=(buffer, me.rank, rounds), daemon=True
                )
                thread.start()
                for _ in range(60):
                    batch = next(loader)
                    numbered.check(batch, batch.masks)
                # Here no rank asks for more, while the writers go on.
                thread.join(timeout=30)
                me.record(f"{tier}/written", not thread.is_alive())
                for _ in range(5):
                    batch = next(loader)
                    numbered.check(batch, batch.masks)
            me.record(f"{tier}/evicted", buffer.stats()["steps_evicted"])


def write_episodes(buffer: gear.ReplayBuffer, rank: int, count: int) -> None:
    for number in range(count):
        with buffer.writer() as writer:
            first = rank * RANK_STRIDE + 1 + 11 * number
            writer.extend(**numbered.rows(np.arange(first, first + 11)))


# ---- two loaders ----


def play_two_loaders(me: Participant) -> None:
    """In turn, and each by itself: a loader's batches do not depend on another's."""
    samplers = {"uniform": gear.Uniform(), "fifo": gear.Fifo()}
    with me.buffer(SCHEMA, 200, page_steps=4, several_nodes=True) as buffer:
        StoredShard(buffer).play(next(Scenario("", gear.Uniform()).story.of(me.rank)))

        def make(name: str) -> gear.Loader:
            return me.loader(buffer, 5, sampler=samplers[name], outputs=RESUMED_OUTPUTS, seed=3)

        both = {name: make(name) for name in samplers}
        for turn in range(6):
            for name, loader in both.items():
                for key, array in arrays_of(next(loader), packed=False).items():
                    me.record(f"{name}/both/{turn}/{key}", array)
        for loader in both.values():
            loader.close()
        for name in samplers:
            with make(name) as loader:
                for turn in range(6):
                    for key, array in arrays_of(next(loader), packed=False).items():
                        me.record(f"{name}/alone/{turn}/{key}", array)


# ---- a rate limit ----


def play_rate_limit(me: Participant) -> None:
    """A batch comes once the limiter of every rank lets it; a time-out is one of all ranks."""
    limit = gear.RateLimit(0, min_steps=20)
    with me.buffer(SCHEMA, 200, page_steps=4, rate_limit=limit) as buffer:
        last = me.rank == me.size - 1

        def write(first: int, steps: int) -> None:
            with buffer.writer() as writer:
                numbers = me.rank * RANK_STRIDE + np.arange(first, first + steps)
                writer.extend(**numbered.rows(numbers))

        write(1, 5 if last else 30)
        loader = me.loader(buffer, 4, outputs=NUMBER, timeout_s=0.4)
        try:
            next(loader)
            me.record("early", "a batch")
        except TimeoutError as error:
            me.record("early", str(error))
        me.group().barrier()
        loader.close()
        loader = me.loader(buffer, 4, outputs=NUMBER)
        thread = threading.Timer(0.3, write, (40, 30))
        if last:
            thread.start()
        me.record("numbers", next(loader)["anchor"])
        if last:
            thread.join()
        loader.close()
