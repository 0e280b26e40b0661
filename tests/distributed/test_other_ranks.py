"""A checkpoint of some ranks, loaded by more or fewer: the same steps, priorities and draws."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numbered
import numpy as np
import pytest
from reference import difference

import gear

STRIDE = 100_000  # numbers of rank r: from r * STRIDE + 1 on
OUTPUTS = {"number": gear.Step(), "obs": gear.Window(-2, 3), "next": gear.Step(1, column="number")}
Call = Callable[[gear.Group], Any]


def on_ranks(size: int, call: Call) -> list[Any]:
    """What `call` returns on each of so many ranks."""
    groups = gear.Group.loopback(size, timeout_s=20) if size > 1 else [gear.Group.single()]
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(call, groups))


def steps_of(buffer: gear.ReplayBuffer) -> dict[int, tuple[Any, ...]]:
    """By number: everything that is known of a stored step."""
    found = {}
    for episode in buffer.episodes():
        if len(episode.ids) == 0:
            continue
        rows = buffer.collect(episode.ids, {"number": gear.Step(), "obs": gear.Step()})
        numbers = np.asarray(rows["number"]).reshape(-1)
        numbered_rows = numbered.rows(numbers)
        assert difference(np.asarray(rows["obs"]).reshape(-1, 11), numbered_rows["obs"]) is None
        priorities = buffer.priorities(episode.ids)
        whole = (int(numbers[0]), episode.begin, episode.end, episode.state, episode.priority)
        for at, number in enumerate(numbers):
            found[int(number)] = (*whole, episode.begin + at, float(priorities[at]))
    return found


def merged(found: list[dict[int, tuple[Any, ...]]]) -> dict[int, tuple[Any, ...]]:
    whole: dict[int, tuple[Any, ...]] = {}
    for one in found:
        assert not whole.keys() & one.keys()
        whole |= one
    return whole


def fill(buffer: gear.ReplayBuffer, rank: int) -> None:
    """More than fits, so that the oldest is gone and pages are used again; one episode is open."""
    rng = np.random.default_rng([rank, 3])
    number = rank * STRIDE + 1
    for length in rng.integers(1, 30, 14):
        with buffer.writer() as writer:
            steps = numbered.rows(np.arange(number, number + length))
            writer.extend(priority=rng.random(length, np.float32) * 3, **steps)
            weight = 2.5 if length % 3 == 0 else None
            final = {"obs": steps["obs"][-1]} if length % 2 else None
            writer.end_episode(terminated=length % 2 == 0, weight=weight, final=final)
        number += int(length)
    writer = buffer.writer()
    writer.extend(
        priority=np.full(5 + rank, 0.5, np.float32),
        **numbered.rows(np.arange(number, number + 5 + rank)),
    )


@pytest.mark.parametrize(("saved", "loaded"), [(1, 2), (2, 1), (2, 3), (3, 2), (4, 1)])
def test_every_step_is_there_once(tmp_path: Path, saved: int, loaded: int) -> None:
    """With its priority and its place in the episode; and the buffer goes on: open episodes take
    further steps, saved again and loaded by the former number nothing has changed."""

    def save(group: gear.Group) -> Any:
        with gear.ReplayBuffer(numbered.SCHEMA, 96, page_steps=4, group=group) as buffer:
            fill(buffer, group.rank)
            buffer.save(tmp_path / "replay")
            return steps_of(buffer), buffer.capacity, buffer.stats()

    def load(group: gear.Group) -> Any:
        with gear.ReplayBuffer.load(tmp_path / "replay", group=group) as buffer:
            found = steps_of(buffer)
            buffer.save(tmp_path / "again")
            opened = [e for e in buffer.episodes() if e.state == "open"]
            for episode in opened:
                with buffer.writer(episode=episode.uid) as writer:
                    writer.append(**{k: v[0] for k, v in numbered.rows(np.array([7])).items()})
                    writer.end_episode(terminated=False)
            uids = [e.uid for e in buffer.episodes()]
            return found, buffer.capacity, buffer.stats(), uids, [e.uid for e in opened]

    before = on_ranks(saved, save)
    after = on_ranks(loaded, load)
    whole = merged([one[0] for one in before])
    assert merged([one[0] for one in after]) == whole
    assert sum(one[1] for one in after) >= sum(one[1] for one in before)
    for count in ("steps_inserted", "steps_evicted"):
        assert sum(one[2][count] for one in after) == sum(one[2][count] for one in before)
    uids = sorted(uid for one in after for uid in one[3])
    assert uids == list(range(1, len(uids) + 1))
    assert all(one[3] == sorted(one[3]) for one in after)
    # Open episodes stay with their rank, or come to rank k modulo the number of ranks.
    for rank, one in enumerate(after):
        came = [int(step[0]) // STRIDE for step in one[0].values() if step[3] == "open"]
        assert {owner % loaded for owner in came} <= {rank}
        assert len(one[4]) == len(set(came))
    back = on_ranks(
        saved, lambda group: steps_of(gear.ReplayBuffer.load(tmp_path / "again", group=group))
    )
    assert merged(back) == whole


@pytest.mark.parametrize(
    "sampler",
    [gear.Uniform(), gear.Weighted(alpha=0.7, beta=0.5), gear.Sequential(), gear.Fifo()],
    ids=["uniform", "weighted", "epochs", "fifo"],
)
def test_draws_go_on_as_if_nothing_had_changed(tmp_path: Path, sampler: gear.Sampler) -> None:
    """What ranks wrote episode after episode: the batches of all ranks together are the same."""
    total, turns, before = 12, 9, 4

    def fill_plainly(group: gear.Group) -> gear.ReplayBuffer:
        buffer = gear.ReplayBuffer(numbered.SCHEMA, 400, page_steps=4, group=group)
        rng = np.random.default_rng(group.rank)
        numbered.write(buffer, group.rank * STRIDE + 1, [13, 5, 21, 8], rng)
        return buffer

    def loader_of(buffer: gear.ReplayBuffer, size: int) -> gear.Loader:
        return buffer.loader(
            total // size,
            sampler=sampler,
            outputs=OUTPUTS,
            framework="numpy",
            prefetch=3,
            seed=4,
        )

    def draw(loader: gear.Loader, turns: range) -> list[list[int]]:
        return [
            [] if (batch := next(loader, None)) is None else batch["number"].reshape(-1).tolist()
            for _ in turns
        ]

    def whole(group: gear.Group) -> Any:
        with fill_plainly(group) as buffer, loader_of(buffer, group.size) as loader:
            draw(loader, range(before))
            state = loader.state_dict()
            buffer.save(tmp_path / "replay")
            return draw(loader, range(before, turns)), state

    def rest(group: gear.Group) -> Any:
        with (
            gear.ReplayBuffer.load(tmp_path / "replay", group=group) as buffer,
            loader_of(buffer, group.size) as loader,
        ):
            loader.load_state_dict(state)
            return draw(loader, range(before, turns))

    def in_all(found: list[list[list[int]]]) -> list[list[int]]:
        return [sorted(chain(*parts)) for parts in zip(*found, strict=True)]

    uninterrupted = on_ranks(2, whole)
    state = uninterrupted[1][1]
    expected = in_all([numbers for numbers, _ in uninterrupted])
    for size in (1, 3, 4):
        assert in_all(on_ranks(size, rest)) == expected, size


def test_another_total_batch_is_refused(tmp_path: Path) -> None:
    def save(group: gear.Group) -> Any:
        with gear.ReplayBuffer(numbered.SCHEMA, 96, page_steps=4, group=group) as buffer:
            fill(buffer, group.rank)
            with buffer.loader(8, framework="numpy") as loader:
                next(loader)
                buffer.save(tmp_path / "replay")
                return loader.state_dict()

    state = on_ranks(2, save)[0]
    with (
        gear.ReplayBuffer.load(tmp_path / "replay") as buffer,
        buffer.loader(8, framework="numpy") as loader,
        pytest.raises(gear.InvalidArgument, match=r"16 items .* 2 rank\(s\): this loader has 8"),
    ):
        loader.load_state_dict(state)


def test_parts_of_two_saves_are_refused(tmp_path: Path) -> None:
    for name in ("rank-00000-of-00002", "rank-00001-of-00002", "rank-00000-of-00003"):
        (tmp_path / "replay" / name).mkdir(parents=True)
    with pytest.raises(gear.InvalidArgument, match="parts of 2 and of 3 ranks"):
        gear.ReplayBuffer.load(tmp_path / "replay")


def test_parts_of_two_buffers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "replay").mkdir()
    for rank, column in enumerate(("obs", "pixels")):
        schema = gear.Schema([gear.Column(column, (), "float32")])
        with gear.ReplayBuffer(schema, 64) as buffer:
            buffer.save(tmp_path / "replay" / f"rank-0000{rank}-of-00002")
    with pytest.raises(gear.CorruptData, match="they are of several buffers"):
        gear.ReplayBuffer.load(tmp_path / "replay")


def test_damaged_page_is_named(tmp_path: Path) -> None:
    def save(group: gear.Group) -> None:
        with gear.ReplayBuffer(numbered.SCHEMA, 96, page_steps=4, group=group) as buffer:
            fill(buffer, group.rank)
            buffer.save(tmp_path / "replay")

    on_ranks(2, save)
    (file,) = (tmp_path / "replay" / "rank-00001-of-00002").glob("*.gear")
    content = bytearray(file.read_bytes())
    content[-2000] ^= 1
    file.write_bytes(content)
    with pytest.raises(gear.CorruptData, match=r"rank-00001-of-00002.* page .* is damaged"):
        gear.ReplayBuffer.load(tmp_path / "replay")
