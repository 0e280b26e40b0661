"""A small buffer whose content is known, for tests in which a refused call must change nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from reference import difference

import gear

SCHEMA = gear.Schema([gear.Column("obs", (3,), "float32"), gear.Column("action", (), "int64")])
GOOD: dict[str, Any] = {"obs": np.ones(3, np.float32), "action": 1}
ROWS: dict[str, Any] = {"obs": np.ones((4, 3), np.float32), "action": np.arange(4)}


class Filled:
    """A buffer with an ended and an open episode, the writer of the latter, and what is in it."""

    def __init__(self, buffer: gear.ReplayBuffer) -> None:
        self.buffer = buffer
        rng = np.random.default_rng(0)
        with buffer.writer() as writer:
            for action in range(5):
                writer.append(obs=rng.random(3, np.float32), action=action)
        self.writer = buffer.writer()
        self.writer.extend(obs=rng.random((6, 3), np.float32), action=np.arange(6))
        self.ids = np.concatenate([e.ids for e in buffer.episodes()])
        self.saved = self.content()

    def content(self) -> tuple[list[Any], np.ndarray, np.ndarray]:
        episodes = [(e.uid, e.begin, e.end, e.state, e.priority) for e in self.buffer.episodes()]
        batch = self.buffer.collect(self.ids, framework="numpy")
        return episodes, batch["obs"].copy(), batch["action"].copy()

    def check_nothing_changed(self) -> None:
        episodes, obs, action = self.content()
        assert episodes == self.saved[0]
        assert len(self.buffer) == 11
        assert difference(obs, self.saved[1]) is None
        assert difference(action, self.saved[2]) is None
        self.writer.append(**GOOD)
        assert len(self.buffer) == 12
