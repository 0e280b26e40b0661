"""What updates on the GPU changed is there wherever the CPU looks: saves, samplers, eviction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numbered import SCHEMA, check, write

import gear

torch = pytest.importorskip("torch")

SAMPLER = gear.Weighted(alpha=0.8, beta=0.4)
TIERS = pytest.mark.parametrize("tier", ["pinned", "device"])


def live(buffer: gear.ReplayBuffer, options: dict[str, Any], turns: int = 12) -> None:
    """Draws, updates and appends; the same whatever the loader's `options` say of the device."""
    rng = np.random.default_rng(5)
    first = write(buffer, 1, [30, 7, 64, 12], rng)
    loader = buffer.loader(24, sampler=SAMPLER, framework="torch", seed=2, **options)
    for turn in range(turns):
        batch = next(loader)
        where = batch.ids.device
        ids = batch.ids.cpu().numpy()
        priorities = ((ids * 31 + turn) % 57).astype(np.float32) / 8
        buffer.update(batch.ids, torch.from_numpy(priorities).to(where))
        if turn % 3 == 1:
            first = write(buffer, first, [20, 3], rng)
    loader.close()


@TIERS
def test_priorities_episodes_and_counts(gpu, tier) -> None:
    with (
        gpu.place(tier).buffer(SCHEMA, 160, page_steps=8) as ours,
        gear.ReplayBuffer(SCHEMA, 160, page_steps=8) as theirs,
    ):
        live(ours, gpu.to_gpu())
        live(theirs, {})
        stored = theirs.episodes()
        found = ours.episodes()
        assert [(e.uid, e.begin, e.end, e.priority, e.ids.tolist()) for e in found] == [
            (e.uid, e.begin, e.end, e.priority, e.ids.tolist()) for e in stored
        ]
        ids = np.concatenate([e.ids for e in stored])
        assert np.array_equal(ours.priorities(ids), theirs.priorities(ids))
        for name in ("max_priority", "stale_updates", "steps_sampled", "steps_evicted"):
            assert ours.stats()[name] == theirs.stats()[name], name


@TIERS
def test_checkpoints_are_the_same_bytes(gpu, tier, tmp_path: Path) -> None:
    for name, place, options in (
        ("ours", gpu.place(tier).arguments(), gpu.to_gpu()),
        ("theirs", {}, {}),
    ):
        with gear.ReplayBuffer(SCHEMA, 160, page_steps=8, **place) as buffer:
            live(buffer, options)
            buffer.save(tmp_path / name)
    for theirs in sorted((tmp_path / "theirs").iterdir()):
        assert (tmp_path / "ours" / theirs.name).read_bytes() == theirs.read_bytes(), theirs.name


@TIERS
@pytest.mark.parametrize("other", ["host", "pinned", "device"])
def test_a_checkpoint_goes_to_any_tier(gpu, tier, other, tmp_path: Path) -> None:
    with gpu.place(tier).buffer(SCHEMA, 160, page_steps=8) as buffer:
        live(buffer, gpu.to_gpu())
        buffer.save(tmp_path / "replay")
        ids = np.concatenate([e.ids for e in buffer.episodes()])
        expected = buffer.priorities(ids)
        numbers = buffer.collect(ids, framework="numpy")["number"]
    with gpu.place(other).load(tmp_path / "replay") as loaded:
        assert np.array_equal(loaded.priorities(ids), expected)
        batch = loaded.collect(ids, framework="numpy")
        check(batch)
        assert np.array_equal(batch["number"], numbers)
        live(loaded, gpu.to_gpu())
        check(loaded.collect(loaded.episodes()[-1].ids, framework="numpy"))


@TIERS
def test_the_cpu_draws_by_what_the_gpu_was_told(gpu, tier) -> None:
    with gpu.place(tier).buffer(SCHEMA, 256, page_steps=8) as buffer:
        write(buffer, 1, [50, 50], np.random.default_rng(0))
        ids = np.concatenate([e.ids for e in buffer.episodes()])
        loader = buffer.loader(16, sampler=SAMPLER, framework="torch", **gpu.to_gpu())
        next(loader)
        priorities = np.full(100, 1e-6, np.float32)
        priorities[[7, 93]] = [60.0, 40.0]
        buffer.update(
            torch.from_numpy(ids).to(gpu.device), torch.from_numpy(priorities).to(gpu.device)
        )
        for sampler in (gear.Weighted(alpha=1.0), gear.TopK()):
            with buffer.loader(
                2, sampler=sampler, framework="torch", device="cpu", prefetch=0
            ) as cpu:
                assert set(next(cpu).ids.tolist()) <= {int(ids[7]), int(ids[93])}
        drawn = buffer.loader(
            1, sampler=gear.Weighted(unit="episode"), framework="torch", prefetch=0, **gpu.to_gpu()
        )
        assert next(drawn).size == 1
        heads = [e.priority for e in buffer.episodes()]
        assert heads == pytest.approx([1.2, 0.8], rel=1e-3)


@TIERS
def test_eviction_by_lowest_priority(gpu, tier) -> None:
    with gpu.place(tier).buffer(SCHEMA, 32, page_steps=8, evict="lowest_priority") as buffer:
        write(buffer, 1, [8, 8, 8, 8], np.random.default_rng(0))
        loader = buffer.loader(4, sampler=SAMPLER, framework="torch", **gpu.to_gpu())
        next(loader)
        episodes = buffer.episodes()
        for episode, value in zip(episodes, [5.0, 0.5, 4.0, 3.0], strict=True):
            ids = torch.from_numpy(episode.ids).to(gpu.device)
            buffer.update(ids, torch.full((8,), value, device=gpu.device))
        write(buffer, 100, [8], np.random.default_rng(1))
        assert [e.uid for e in buffer.episodes()][:3] == [episodes[i].uid for i in (0, 2, 3)]


@TIERS
def test_two_weighted_loaders_share_what_is_known(gpu, tier) -> None:
    """Different exponents, one set of priorities; and they are as the CPU's."""
    ours = gpu.place(tier).make(SCHEMA, 256, page_steps=8)
    theirs = gear.ReplayBuffer(SCHEMA, 256, page_steps=8)
    samplers = [gear.Weighted(alpha=0.5), gear.Weighted(alpha=1.0), gear.Uniform()]
    seen: list[list[Any]] = []
    for buffer, device, options in ((ours, gpu.device, gpu.to_gpu()), (theirs, "cpu", {})):
        write(buffer, 1, [40, 60, 11], np.random.default_rng(0))
        loaders = [
            buffer.loader(16, sampler=s, framework="torch", seed=k, **options)
            for k, s in enumerate(samplers)
        ]
        drawn = []
        for turn in range(10):
            for loader in loaders:
                batch = next(loader)
                drawn.append(batch.ids.tolist())
                values = (batch.ids % 13).float() + turn
                buffer.update(batch.ids, values.to(device))
        seen.append(drawn)
        for loader in loaders:
            loader.close()
        buffer.close()
    assert seen[0] == seen[1]
