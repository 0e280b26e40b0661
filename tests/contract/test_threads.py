"""Writers in threads beside a loader: every delivered row belongs to the step it claims to be."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gear

# Every row says whose it is: `who` = (writer, episode of that writer, step), `body` repeats it.
SCHEMA = gear.Schema([gear.Column("who", (3,), "int64"), gear.Column("body", (400,), "int64")])
OUTPUTS = {"who": gear.Window(-3, 4), "body": gear.Window(-3, 4)}


def rows(writer: int, episode: int, first: int, count: int) -> dict[str, np.ndarray]:
    steps = np.arange(first, first + count)
    who = np.stack([np.full(count, writer), np.full(count, episode), steps], axis=1)
    body = np.repeat((who * [1_000_000, 1000, 1]).sum(1), 400).reshape(count, 400)
    return {"who": who, "body": body}


class Writers:
    """Four threads that append episodes until told to stop; what they raise is raised by stop()."""

    def __init__(self, buffer: gear.ReplayBuffer) -> None:
        self.buffer = buffer
        self.stopping = threading.Event()
        self.errors: list[BaseException] = []
        self.threads = [threading.Thread(target=self.write, args=(i,)) for i in range(4)]

    def __enter__(self) -> Writers:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join(30)
            assert not thread.is_alive()
        if self.errors:
            raise self.errors[0]

    def write(self, number: int) -> None:
        rng = np.random.default_rng(number)
        try:
            with self.buffer.writer() as writer:
                episode = 0
                while not self.stopping.is_set():
                    step, length = 0, int(rng.integers(1, 60))
                    while step < length:
                        count = min(int(rng.integers(1, 50)), length - step)
                        writer.extend(**rows(number, episode, step, count))
                        step += count
                    final = {k: v[0] for k, v in rows(number, episode, length, 1).items()}
                    writer.end_episode(terminated=True, final=final)
                    episode += 1
        except BaseException as error:  # noqa: BLE001
            self.errors.append(error)


def assert_consistent(batch: gear.Batch) -> None:
    who, mask = batch["who"], batch.masks["who"]
    assert np.array_equal(mask, batch.masks["body"])
    body = (who * [1_000_000, 1000, 1]).sum(-1)
    assert np.array_equal(batch["body"], np.repeat(body[..., None], 400, -1))
    assert np.all(who[~mask] == 0)
    assert np.all(mask[:, 3]), "the anchor itself is there"
    same = mask[:, 1:] & mask[:, :-1]
    moves = who[:, 1:] - who[:, :-1]
    assert np.all(moves[same] == [0, 0, 1]), "one episode, consecutive steps"
    assert np.all(np.diff(mask.astype(int), axis=1).clip(0).sum(1) <= 1), "no holes"


@pytest.mark.parametrize("sampler", [gear.Uniform(), gear.Weighted(), gear.Lifo()], ids=repr)
def test_loader_beside_writers(tier, sampler) -> None:
    with (
        tier.buffer(SCHEMA, 256, page_steps=8) as buffer,
        Writers(buffer) as writers,
    ):
        while len(buffer) < 200:
            assert not writers.errors
        with buffer.loader(64, sampler=sampler, outputs=OUTPUTS, framework="numpy") as loader:
            for _ in range(150):
                batch = next(loader)
                assert_consistent(batch)
                applied = buffer.update(batch.ids, np.ones(batch.size, np.float32))
                assert 0 <= applied <= batch.size
        assert buffer.stats()["steps_evicted"] > 0


def test_two_loaders_updates_and_collects_beside_writers(tier) -> None:
    with tier.buffer(SCHEMA, 512, page_steps=8) as buffer, Writers(buffer) as writers:
        while len(buffer) < 400:
            assert not writers.errors

        def sample(seed: int) -> None:
            with buffer.loader(
                32, sampler=gear.Weighted(), outputs=OUTPUTS, framework="numpy", seed=seed
            ) as loader:
                for _ in range(60):
                    batch = next(loader)
                    assert_consistent(batch)
                    buffer.update(batch.ids, np.full(batch.size, 2.0, np.float32))

        def collect(seed: int) -> None:
            for _ in range(60):
                ids = np.concatenate([e.ids for e in buffer.episodes()])[-300:]
                try:
                    assert_consistent(buffer.collect(ids, OUTPUTS, framework="numpy"))
                except gear.InvalidArgument as error:
                    assert "evicted" in str(error)  # noqa: PT017

        run_all([sample, sample, collect])


def run_all(tasks: list[Callable[[int], None]]) -> None:
    errors: list[BaseException] = []

    def run(task: Callable[[int], None], number: int) -> None:
        try:
            task(number)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=run, args=(t, i)) for i, t in enumerate(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def test_saving_beside_writers_and_a_loader(tier, tmp_path: Path) -> None:
    """Every save is whole, at whatever point of an append or an eviction it falls."""
    with tier.buffer(SCHEMA, 512, page_steps=8) as buffer, Writers(buffer) as writers:
        while len(buffer) < 400:
            assert not writers.errors
        with buffer.loader(1000, outputs=OUTPUTS, framework="numpy") as loader:
            for number in range(30):
                assert_consistent(next(loader))
                buffer.save(tmp_path / "replay")
                with gear.ReplayBuffer.load(tmp_path / "replay") as loaded:
                    ids = np.concatenate([e.ids for e in loaded.episodes()])
                    assert len(ids) == len(loaded) > 0, number
                    assert_consistent(loaded.collect(ids, OUTPUTS, framework="numpy"))
