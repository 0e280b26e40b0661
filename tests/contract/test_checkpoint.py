"""What is saved comes back to the bit, and goes on as if nothing had happened."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from script import Player, Script, check_content, scripts

import gear

COUNTS = ["steps_inserted", "steps_evicted", "steps_sampled", "stale_updates", "max_priority"]


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory per example; tmp_path is one per test."""
    path = Path(tempfile.mkdtemp(prefix="gear_test_"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def draws(buffer: gear.ReplayBuffer, sampler: gear.Sampler) -> list[np.ndarray]:
    """Nothing where every priority is 0."""
    outputs = {column.name: gear.Window(-1, 1) for column in buffer.schema}
    with buffer.loader(16, sampler=sampler, outputs=outputs, framework="numpy", seed=9) as loader:
        try:
            batches = [next(loader) for _ in range(4)]
        except gear.InvalidArgument:
            return []
    parts = [[b.ids, b.probabilities, b.weights, *(b[name] for name in b)] for b in batches]
    return [array.view(np.uint8) for part in parts for array in part if array.ndim]


def test_save_makes_the_folders_above(tier, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with tier.buffer(SCHEMA, 64) as buffer:
        write(buffer, 10)
        for path in (tmp_path / "a" / "b" / "replay", "c/d/replay", b"e/f"):
            buffer.save(path)
            with tier.load(path) as loaded:
                assert len(loaded) == 10
        (tmp_path / "file").touch()
        with pytest.raises(gear.IoError, match="file"):
            buffer.save(tmp_path / "file" / "replay")


@settings(max_examples=60)
@given(data=st.data(), script=scripts(max_calls=10))
def test_load_restores_everything(tier, data: st.DataObject, script: Script) -> None:
    cut = data.draw(st.integers(0, len(script.calls)))
    with (
        tier.buffer(script.schema(), script.capacity, **script.arguments()) as buffer,
        scratch() as path,
    ):
        player = Player(script, buffer, script.model())
        player.play(script.calls[:cut])
        ids = player.remember()
        buffer.save(path / "replay")
        with tier.load(path / "replay") as loaded:
            assert loaded.schema == buffer.schema
            assert loaded.capacity == buffer.capacity
            assert loaded.page_steps == buffer.page_steps
            stats = buffer.stats()
            assert [loaded.stats()[name] for name in COUNTS] == [stats[n] for n in COUNTS]
            episodes = [(e.uid, e.state, e.priority, e.ids.tolist()) for e in buffer.episodes()]
            assert episodes == [
                (e.uid, e.state, e.priority, e.ids.tolist()) for e in loaded.episodes()
            ]
            if any(e.ended for e in player.model.episodes):
                for sampler in (gear.Uniform(), gear.Weighted(), gear.Weighted(unit="episode")):
                    one, other = draws(buffer, sampler), draws(loaded, sampler)
                    assert all(map(np.array_equal, one, other))
            # From here on the loaded one alone: its open episodes go on, evictions follow the
            # same order, and ids from before the checkpoint stay good.
            player.use(loaded)
            assert player.remember() == ids
            check_content(player)
            player.play(script.calls[cut:])
            check_content(player)


SCHEMA = gear.Schema([gear.Column("x", (), "int32")])


def write(buffer: gear.ReplayBuffer, steps: int, first: int = 0) -> None:
    with buffer.writer() as writer:
        writer.extend(x=np.arange(first, first + steps, dtype=np.int32))


def contents(buffer: gear.ReplayBuffer) -> list[int]:
    ids = np.concatenate([e.ids for e in buffer.episodes()] or [np.zeros(0, np.int64)])
    return buffer.collect(ids, framework="numpy")["x"].tolist() if len(ids) else []


def test_an_empty_buffer_and_a_second_save_in_place(tier, tmp_path: Path) -> None:
    path = tmp_path / "replay"
    with tier.buffer(SCHEMA, 64) as buffer:
        for steps in (0, 10, 30):
            write(buffer, steps) if steps else None
            saved = contents(buffer)
            buffer.save(path)
            assert [p.name for p in tmp_path.iterdir()] == ["replay"], "nothing else is left"
            with tier.load(path) as loaded:
                assert contents(loaded) == saved
                write(loaded, 5)
                assert len(loaded) == len(buffer) + 5
            buffer.save(str(path))


def test_load_of_a_missing_folder_names_it(tmp_path: Path) -> None:
    with pytest.raises((OSError, gear.InvalidArgument), match="missing"):
        gear.ReplayBuffer.load(tmp_path / "missing")


def test_paths_that_no_file_system_takes(tier, tmp_path: Path) -> None:
    with tier.buffer(SCHEMA, 64) as buffer:
        for path in (tmp_path / ("x" * 300), tmp_path / ("x" * 300) / "replay"):
            with pytest.raises(gear.InvalidArgument, match="too long: shorten it"):
                buffer.save(path)
            with pytest.raises((gear.InvalidArgument, gear.IoError), match="too long"):
                gear.ReplayBuffer.load(path)
        loop = tmp_path / "loop"
        loop.symlink_to(loop)
        with pytest.raises(gear.InvalidArgument, match="circle"):
            buffer.save(loop)
        file = tmp_path / "file"
        file.touch()
        with pytest.raises(gear.IoError, match="Not a directory"):
            buffer.save(file / "replay")


def until_timeout(loader: gear.Loader) -> Iterator[gear.Batch]:
    try:
        yield from loader
    except TimeoutError:
        return


@pytest.mark.parametrize("times", [1, 2])
def test_sample_counts_and_rate_limits_come_back(tier, tmp_path: Path, times: int) -> None:
    limit = gear.RateLimit(samples_per_insert=1.0, min_steps=4, slack=8.0)
    with tier.buffer(SCHEMA, 64, max_times_sampled=times, rate_limit=limit) as buffer:
        write(buffer, 10)
        with buffer.loader(5, sampler=gear.Fifo(), prefetch=1, framework="numpy") as loader:
            seen = next(loader)["x"].tolist()
        sampled = buffer.stats()["steps_sampled"]
        buffer.save(tmp_path / "replay")
    with (
        tier.load(tmp_path / "replay") as loaded,
        loaded.loader(
            1, sampler=gear.Fifo(), prefetch=1, framework="numpy", timeout_s=0.02
        ) as loader,
    ):
        assert loaded.stats()["steps_sampled"] == sampled
        seen += [x for batch in until_timeout(loader) for x in batch["x"].tolist()]
        assert loaded.stats()["steps_sampled"] <= 8 + 10 - 4
        assert max(seen.count(x) for x in seen) <= times


def test_evicted_experience_does_not_go_into_checkpoints(tier, tmp_path: Path) -> None:
    """Also not in the row of a closing step that leaves a column out."""
    schema = gear.Schema([gear.Column("x", (4,), "uint8"), gear.Column("y", (), "uint8")])
    marker = b"\x5e\xc2\xe7\x5a"
    with tier.buffer(schema, 8, page_steps=4) as buffer:
        with buffer.writer() as writer:
            secret = np.frombuffer(marker * 8, np.uint8).reshape(8, 4)
            writer.extend(x=secret, y=np.zeros(8, np.uint8))
        for _ in range(2):
            writer = buffer.writer()
            writer.append(x=np.ones(4, np.uint8), y=1)
            writer.end_episode(final={"y": 2})
        assert [e.uid for e in buffer.episodes()] == [2, 3]
        buffer.save(tmp_path / "replay")
    for file in (tmp_path / "replay").iterdir():
        assert marker not in file.read_bytes(), file.name


def test_the_scale_of_draws_is_kept_though_the_largest_is_gone(tier, tmp_path: Path) -> None:
    """What decides it was evicted: a step's priority, and an episode's own weight (format 4)."""
    with tier.buffer(SCHEMA, 16, page_steps=4) as buffer:
        for number in range(6):  # the first two are evicted
            with buffer.writer() as writer:
                writer.extend(
                    **{c.name: np.zeros((4, *c.shape), c.dtype) for c in buffer.schema},
                    priority=[0.7 + number] * 4 if number else [3e9] * 4,
                )
                writer.end_episode(weight=2e7 if number == 1 else 0.3 + number)
        assert len(buffer.episodes()) == 4
        buffer.save(tmp_path / "replay")
        with tier.load(tmp_path / "replay") as loaded:
            for unit in ("step", "episode"):
                sampler = gear.Weighted(alpha=0.7, beta=1.0, unit=unit)
                one, other = draws(buffer, sampler), draws(loaded, sampler)
                assert len(one) == len(other) > 0
                for mine, theirs in zip(one, other, strict=True):
                    np.testing.assert_array_equal(mine, theirs)
    assert (tmp_path / "replay" / "MANIFEST").read_text().startswith("gear-checkpoint 4")
