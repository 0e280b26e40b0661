"""Saved data of toy tasks for the offline tests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import gear

OBS = 3  # as Pendulum's


def write_pendulum(path: Path, lengths=(7, 12, 5, 9), *, seed: int = 0) -> list[dict]:
    """Episodes with Pendulum's columns, action 0.5 * tanh(obs[0]); returns what was stored."""
    return _write(path, lengths, seed, OBS, lambda obs: 0.5 * np.tanh(obs[:, :1]))


def write_cartpole(path: Path, lengths=(7, 12, 5, 9), *, seed: int = 0) -> list[dict]:
    """Episodes with CartPole's columns: the action is whether obs[0] > 0."""
    return _write(path, lengths, seed, 4, lambda obs: (obs[:, 0] > 0).astype(np.int64))


def _write(path, lengths, seed, size, act) -> list[dict]:
    rng = np.random.default_rng(seed)
    action = act(np.zeros((1, size), np.float32))
    columns = [
        gear.Column("obs", (size,), "float32"),
        gear.Column("action", action.shape[1:], str(action.dtype)),
        gear.Column("reward", (), "float32"),
        gear.Column("terminated", (), "bool"),
    ]
    stored = []
    with gear.ReplayBuffer(gear.Schema(columns), 4096, page_steps=16) as buffer:
        with buffer.writer() as writer:
            for length in lengths:
                obs = rng.normal(size=(length, size)).astype(np.float32)
                steps = {
                    "obs": obs,
                    "action": act(obs),
                    "reward": -rng.random(length).astype(np.float32),
                    "terminated": np.zeros(length, bool),
                }
                writer.extend(**steps)
                writer.end_episode(final={"obs": obs[-1]})
                stored.append(steps)
        buffer.save(path)
    return stored


def write_arc(folder: Path) -> None:
    """Two sets as ARC has them; one puzzle has two queries, one is larger than the others."""
    pair = {"input": [[0, 1, 2]], "output": [[2], [1], [0]]}
    large = {"input": [[3] * 9], "output": [[4] * 9]}
    for place, name, train, test in (
        ("training", "a", [pair] * 3, [pair]),
        ("training", "b", [pair, pair], [pair, pair]),
        ("training", "c", [large] * 3, [large]),
        ("evaluation", "d", [pair] * 2, [pair]),
    ):
        (folder / place).mkdir(parents=True, exist_ok=True)
        (folder / place / f"{name}.json").write_text(json.dumps({"train": train, "test": test}))
