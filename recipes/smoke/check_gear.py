"""What goes into a replay buffer comes out of it, and out of its checkpoint."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import gear

schema = gear.Schema([gear.Column("obs", (3,), "float32"), gear.Column("reward", (), "float32")])
rewards = np.arange(100, dtype=np.float32)
with gear.ReplayBuffer(schema, capacity=100) as buffer:
    with buffer.writer() as writer:
        writer.extend(obs=np.repeat(rewards[:, None], 3, axis=1), reward=rewards)
        writer.end_episode(terminated=True)
    with tempfile.TemporaryDirectory() as folder:
        buffer.save(Path(folder) / "checkpoint")
        with (
            gear.ReplayBuffer.load(Path(folder) / "checkpoint") as again,
            again.loader(50, sampler=gear.Sequential(), framework="numpy") as loader,
        ):
            seen = [batch["reward"].copy() for batch in loader]
            assert np.array_equal(np.sort(np.concatenate(seen)), rewards), seen
print(f"gear {gear.__version__}: 100 steps went through a buffer and its checkpoint")
gear.check_visible_device()
