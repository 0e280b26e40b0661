#!/usr/bin/env python3
"""Every kernel once, without torch: what compute-sanitizer looks at. Checks what comes back.

Keeps steps in device and in pinned memory, draws by every sampler, takes updates, evicts, and
delivers windows, packed and padded, cast and plain, to host memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from numbered import SCHEMA, check, outputs, write

import gear

SAMPLERS = [
    gear.Uniform(),
    gear.Uniform(unit="episode"),
    gear.Weighted(),
    gear.Sequential(),
    gear.TopK(),
    gear.Fifo(),
]


def play(tier: str) -> int:
    """Number of batches that were right."""
    batches = 0
    with gear.ReplayBuffer(SCHEMA, 420, tier=tier, page_steps=7) as buffer:
        rng = np.random.default_rng(0)
        first = write(buffer, 1, [100, 3, 41, 77], rng)
        for sampler in SAMPLERS:
            for packed in (False, True):
                with buffer.loader(
                    33, sampler=sampler, outputs=outputs(-2, 3), packed=packed, framework="numpy"
                ) as loader:
                    for _ in range(3):
                        batch = next(loader)
                        check(batch, None if packed else batch.masks)
                        buffer.update(batch.ids, rng.random(batch.size, np.float32))
                        batches += 1
            first = write(buffer, first, [50, 9], rng)
        cast = {
            "frame": gear.Step(dtype="float16", scale=1 / 255),
            "obs": gear.Step(dtype="bfloat16"),
        }
        with buffer.loader(65, outputs=cast, framework="numpy") as loader:
            for _ in range(3):
                batch = next(loader)
                assert batch["frame"].dtype == np.float16
                assert batch["obs"].dtype == np.uint16
                batches += 1
        ids = np.concatenate([episode.ids for episode in buffer.episodes()])
        check(buffer.collect(ids, framework="numpy"))
        assert np.isfinite(buffer.priorities(ids)).all()
    return batches


if __name__ == "__main__":
    for tier in sys.argv[1:] or ("device", "pinned"):
        print(f"{tier}: {play(tier)} batches are right", flush=True)
