"""What one loader needs to follow a step of an open episode is nothing to another loader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gear

SCHEMA = gear.Schema([gear.Column("x", (), "int32")])
NEAR = {"x": gear.Step(0), "next": gear.Step(1, "x")}
FAR = {"x": gear.Window(0, 500)}


def rows(count: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + count, dtype=np.int32)


def epoch(buffer: gear.ReplayBuffer, outputs: dict[str, gear.Window | gear.Step]) -> list[int]:
    """Every step that a loader of these outputs may draw."""
    sampler = gear.Sequential(shuffle=False)
    with buffer.loader(64, sampler=sampler, outputs=outputs, framework="numpy") as loader:
        return [int(i) for batch in loader for i in batch.ids]


def test_a_second_loader_leaves_the_first_one_its_steps(tier) -> None:
    with tier.buffer(SCHEMA, 1024) as buffer, buffer.writer() as writer:
        writer.extend(x=rows(200))
        sampler = gear.Fifo()
        first = buffer.loader(1024, sampler=sampler, outputs=NEAR, framework="numpy", prefetch=0)
        assert next(first).size == 199
        with buffer.loader(2, outputs=FAR, framework="numpy") as second:
            with pytest.raises(gear.InvalidArgument, match="499 steps"):
                next(second)
            assert next(first).size == 199
            writer.extend(x=rows(100, 200))
            assert next(first).size == 299
        assert next(first).size == 299
        first.close()
        assert buffer.stats()["anchors"] == 300


def test_each_loader_draws_by_its_own_lookahead(tier) -> None:
    with tier.buffer(SCHEMA, 1024, page_steps=4) as buffer, buffer.writer() as writer:
        writer.extend(x=rows(30))
        writer.end_episode()
        writer.extend(x=rows(21, 100))
        stored = np.concatenate([e.ids for e in buffer.episodes()]).tolist()
        for lookahead in (0, 3, 4, 20, 21, 500):
            outputs = {"x": gear.Window(0, lookahead + 1)}
            assert epoch(buffer, outputs) == stored[: 30 + max(0, 21 - lookahead)]


@pytest.mark.parametrize(
    "sampler", [gear.Uniform(), gear.Weighted(), gear.TopK(), gear.Sequential()]
)
def test_draws_do_not_depend_on_another_loader(tier, sampler: gear.Sampler) -> None:
    drawn = []
    for with_another in (False, True):
        with tier.buffer(SCHEMA, 256, page_steps=8) as buffer, buffer.writer() as writer:
            writer.extend(x=rows(50))
            if with_another:
                buffer.loader(2, outputs=FAR, framework="numpy").close()
                kept = buffer.loader(2, outputs={"x": gear.Window(0, 9)}, framework="numpy")
            with buffer.loader(
                16, sampler=sampler, outputs=NEAR, seed=3, framework="numpy"
            ) as loader:
                batches = [next(loader) for _ in range(3)]
                buffer.update(batches[0].ids, np.linspace(0, 2, 16, dtype=np.float32))
                drawn.append([batch.ids.tolist() for batch in [*batches, next(loader)]])
            if with_another:
                kept.close()
    assert drawn[0] == drawn[1]


def test_lookahead_is_not_saved(tier, tmp_path: Path) -> None:
    with tier.buffer(SCHEMA, 64) as buffer:
        writer = buffer.writer()
        writer.extend(x=rows(10))
        with buffer.loader(1, outputs={"x": gear.Window(0, 4)}, framework="numpy") as loader:
            next(loader)
            buffer.save(tmp_path / "replay")
        buffer.save(tmp_path / "without")
    with tier.load(tmp_path / "replay") as loaded:
        assert loaded.stats()["anchors"] == 10
        assert len(epoch(loaded, NEAR)) == 9
    shards = [max((tmp_path / n).glob("shard*")) for n in ("replay", "without")]
    assert len({shard.stat().st_size for shard in shards}) == 1
