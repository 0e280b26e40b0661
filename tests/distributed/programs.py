"""What every rank does in a program of the contract suite, by the program's name."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import numbered
import numpy as np

import gear
from distributed.content import SCHEMA, StoredShard, updated_priorities
from distributed.failures import play_absent, play_hang
from distributed.life import (
    NUMBER,
    play_pressure,
    play_queue,
    play_rate_limit,
    play_resume,
    play_two_loaders,
)
from distributed.participant import Participant
from distributed.refusals import attempts, play_refusals
from distributed.scenarios import SCENARIOS, Scenario
from distributed.single_rank import arrays_of
from distributed.toy import play_toy


def play_scenario(scenario: Scenario, me: Participant) -> None:
    with me.buffer(
        SCHEMA,
        scenario.capacity_of(me.rank),
        page_steps=scenario.page_steps,
        evict=scenario.evict,
        tier=scenario.tier,
        several_nodes=scenario.several_nodes,
    ) as buffer:
        shard = StoredShard(buffer)
        story = scenario.story.of(me.rank)
        shard.play(next(story))
        with me.loader(
            buffer,
            scenario.batch_size,
            prefetch=scenario.prefetch,
            locality=scenario.locality,
            **scenario.loader_arguments(),
        ) as loader:
            for turn in range(scenario.batches):
                me.record(f"{turn}/layout", layout_of(buffer))
                batch = next(loader, None)
                shard.play(next(story))
                if batch is not None:
                    for name, array in arrays_of(batch, scenario.packed).items():
                        me.record(f"{turn}/{name}", array)
                    if scenario.update:
                        numbers = batch["anchor"].reshape(-1)
                        buffer.update(batch.ids, updated_priorities(numbers, turn))
            me.record("stats", json.dumps(loader.stats(), default=str))


def layout_of(buffer: gear.ReplayBuffer) -> np.ndarray:
    """int64 [steps, 3]: uid, step and id of every stored step."""
    rows = [
        np.stack([np.full(len(e.ids), e.uid), np.arange(e.begin, e.end), e.ids], axis=1)
        for e in buffer.episodes()
    ]
    return np.concatenate([np.zeros((0, 3), np.int64), *rows])


# ---- epochs ----

NUM_EPISODES = 1003
EPOCHS = {
    "shuffled": gear.Sequential(unit="episode"),
    "shuffled-drop": gear.Sequential(unit="episode", drop_last=True),
    "in-order": gear.Sequential(unit="episode", shuffle=False),
    "in-order-drop": gear.Sequential(unit="episode", shuffle=False, drop_last=True),
}
EPOCH_BATCH = 23


def epoch_owners(size: int) -> np.ndarray:
    """int [NUM_EPISODES]: the rank that stores each; of three or more ranks one has none."""
    shares = np.array([5.0, 1.0, 0.0, 2.0][:size])
    return np.random.default_rng(3).choice(size, NUM_EPISODES, p=shares / shares.sum())


def play_epochs(me: Participant) -> None:
    with me.buffer(SCHEMA, 8 * NUM_EPISODES, page_steps=4, several_nodes=True) as buffer:
        for episode in np.flatnonzero(epoch_owners(me.size) == me.rank).tolist():
            with buffer.writer() as writer:
                length = episode % 5 + 1
                writer.extend(
                    **numbered.rows(np.arange(episode * 10 + 1, episode * 10 + 1 + length))
                )
        for name, sampler in EPOCHS.items():
            with me.loader(buffer, EPOCH_BATCH, sampler=sampler, outputs=NUMBER, seed=4) as loader:
                me.record(f"{name}/len", len(loader))
                for epoch in range(2):
                    batches = [batch["anchor"].copy() for batch in loader]
                    me.record(f"{name}/{epoch}/sizes", [len(batch) for batch in batches])
                    me.record(f"{name}/{epoch}/numbers", np.concatenate(batches))


# ---- the law of chance over very unequal shards ----

LAW_STEPS = 400
LAW_BATCH, LAW_BATCHES = 250, 40
LAWS: dict[str, gear.Sampler] = {"uniform": gear.Uniform(), "weighted": gear.Weighted(alpha=0.6)}


def law_shares(size: int) -> list[int]:
    """Steps by rank: 90 % on the first, none on the second."""
    rest = LAW_STEPS // 10
    return {
        1: [LAW_STEPS],
        2: [LAW_STEPS, 0],
        3: [LAW_STEPS - rest, 0, rest],
        4: [LAW_STEPS - rest, 0, rest - 7, 7],
    }[size]


def law_priorities(size: int) -> np.ndarray:
    """float32 [LAW_STEPS], in the order of the ranks."""
    return np.random.default_rng(9).uniform(0.05, 5, LAW_STEPS).astype(np.float32)


def play_law(me: Participant) -> None:
    shares = law_shares(me.size)
    first = sum(shares[: me.rank])
    numbers = np.arange(first, first + shares[me.rank]) + 1
    with me.buffer(SCHEMA, LAW_STEPS + 8, page_steps=8) as buffer:
        if numbers.size:
            with buffer.writer() as writer:
                priorities = law_priorities(me.size)[numbers - 1]
                writer.extend(priority=priorities, **numbered.rows(numbers))
        for name, sampler in LAWS.items():
            for locality in ("first", "off"):
                with me.loader(
                    buffer, LAW_BATCH, sampler=sampler, outputs=NUMBER, seed=21, locality=locality
                ) as loader:
                    batches = [next(loader) for _ in range(LAW_BATCHES)]
                    drawn = np.concatenate([batch["anchor"] for batch in batches])
                    probabilities = np.concatenate([batch.probabilities for batch in batches])
                me.record(f"{name}/{locality}/numbers", drawn)
                me.record(f"{name}/{locality}/probabilities", probabilities)


PROGRAMS: dict[str, Callable[[Participant], None]] = {
    **{scenario.name: partial(play_scenario, scenario) for scenario in SCENARIOS},
    "epochs": play_epochs,
    "law": play_law,
    "resume": play_resume,
    "queue": play_queue,
    "pressure": play_pressure,
    "two_loaders": play_two_loaders,
    "rate_limit": play_rate_limit,
    **{program: partial(play_refusals, program) for program in attempts()},
    "toy": play_toy,
    **{f"absent-{rank}": partial(play_absent, rank) for rank in range(3)},
    "hang": play_hang,
}
