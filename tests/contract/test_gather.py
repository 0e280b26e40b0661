"""Every row size and batches beyond a megabyte, where copies are specialised and shared out."""

from __future__ import annotations

import numpy as np
import pytest

import gear

SIZES = [*range(1, 130), 191, 255, 256, 257, 511, 1023, 1024, 1025, 4095, 4096, 4097]


@pytest.mark.parametrize("first", range(0, len(SIZES), 35))
@pytest.mark.parametrize("page_steps", [1, 3, 16])
def test_every_row_size(tier, first: int, page_steps: int) -> None:
    """Random anchors and short windows over columns of 1 to 4097 bytes, beside each other."""
    sizes = SIZES[first : first + 35]
    schema = gear.Schema([gear.Column(f"c{size}", (size,), "uint8") for size in sizes])
    rng = np.random.default_rng(first)
    rows = {f"c{size}": rng.integers(0, 256, (50, size), np.uint8) for size in sizes}
    with tier.buffer(schema, 64, page_steps=page_steps) as buffer:
        with buffer.writer() as writer:
            writer.extend(**rows)
        picks = rng.integers(0, 50, 40)
        ids = buffer.episodes()[0].ids[picks]
        steps = buffer.collect(ids, framework="numpy")
        outputs = {name: gear.Window(-2, 3) for name in rows}
        windows = buffer.collect(ids, outputs, framework="numpy")
        packed = buffer.collect(ids, outputs, packed=True, framework="numpy")
        wanted = picks[:, None] + np.arange(-2, 3)
        there = (wanted >= 0) & (wanted < 50)
        for name, values in rows.items():
            assert np.array_equal(steps[name], values[picks]), name
            expected = np.where(there[..., None], values[wanted.clip(0, 49)], 0)
            assert np.array_equal(windows[name], expected), name
            assert np.array_equal(packed[name], expected[there]), name


@pytest.mark.parametrize("packed", [False, True])
def test_batches_of_many_megabytes(tier, packed: bool) -> None:
    schema = gear.Schema(
        [gear.Column("frame", (84, 84), "uint8"), gear.Column("reward", (), "float32")]
    )
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (700, 84, 84), np.uint8)
    rewards = rng.random(700, np.float32)
    with tier.buffer(schema, 1024) as buffer:
        with buffer.writer() as writer:
            writer.extend(frame=frames, reward=rewards)
        outputs = {"frame": gear.Window(-3, 1), "reward": gear.Window(0, 5)}
        with buffer.loader(
            512, outputs=outputs, packed=packed, framework="numpy", prefetch=3
        ) as loader:
            for _ in range(4):
                batch = next(loader)
                anchors = np.searchsorted(buffer.episodes()[0].ids, batch.ids)
                for name, values, start, stop in (
                    ("frame", frames, -3, 1),
                    ("reward", rewards, 0, 5),
                ):
                    wanted = anchors[:, None] + np.arange(start, stop)
                    there = (wanted >= 0) & (wanted < 700)
                    expected = values[wanted.clip(0, 699)]
                    expected[~there] = 0
                    expected = expected[there] if packed else expected
                    assert np.array_equal(batch[name], expected), name
