"""One trip through an installed GEAR with nothing but numpy beside it (see check_install.sh)."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path

import numpy as np

import gear


def main() -> None:
    assert importlib.util.find_spec("torch") is None, "torch is here: not a bare environment"
    schema = gear.Schema([gear.Column("obs", (3,), "float32"), gear.Column("reward")])
    buffer = gear.ReplayBuffer(schema, capacity=1024)
    observations = np.arange(300, dtype=np.float32).reshape(100, 3)
    with buffer.writer() as writer:
        writer.extend(obs=observations, reward=np.arange(100, dtype=np.float32))
        writer.end_episode(terminated=True)
    assert len(buffer) == 100

    outputs = {"obs": gear.Step(), "next_obs": gear.Window(1, 2, column="obs")}
    loader = buffer.loader(batch_size=32, outputs=outputs, framework="numpy")
    batch = next(loader)
    loader.close()
    first = batch["obs"][:, 0].astype(int) // 3
    assert np.array_equal(batch["obs"], observations[first])
    inside = first + 1 < 100
    assert np.array_equal(batch.masks["next_obs"][:, 0], inside)
    assert np.array_equal(batch["next_obs"][inside, 0], observations[first[inside] + 1])

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        buffer.save(path)
        assert len(gear.ReplayBuffer.load(path)) == 100
    print(f"install: gear {gear.__version__}, numpy {np.__version__}: round trip ok")


if __name__ == "__main__":
    main()
