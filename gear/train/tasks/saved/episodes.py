"""Saved experience as whole episodes, with the return still to come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gear
from gear.train.record import checkpoint
from gear.train.tasks.environment import Environment

Array = NDArray[Any]
Kinds = dict[str, tuple[tuple[int, ...], str]]  # column -> shape and dtype


@dataclass(frozen=True)
class Whole:
    """An episode from its first to its last step: [T, ...]."""

    obs: Array
    action: Array
    reward: Array
    terminated: bool

    @property
    def to_go(self) -> Array:
        """What is still to come at each step, its own reward included; float64 [T]."""
        return np.cumsum(self.reward[::-1].astype(np.float64))[::-1]


def find(given: str | None) -> Path:
    """The saved buffer at data.path: a run's or a checkpoint's, or the directory itself."""
    path = Path(str(given))
    if (path / "MANIFEST").is_file() or list(path.glob("rank-*-of-*")):
        return path
    try:
        return checkpoint.find(path).path / "replay"
    except gear.InvalidArgument:
        raise gear.InvalidArgument(
            f"[train] data.path={given} holds no experience: give the directory of a run, of one "
            "of its checkpoints, or one that ReplayBuffer.save wrote"
        ) from None


def episodes(path: Path, env: Environment) -> Iterator[Whole | None]:
    """The episodes in the order of the ranks that saved them; None for one that is not whole."""
    kinds = kinds_of(env)
    for part in sorted(path.glob("rank-*-of-*")) or [path]:
        with gear.ReplayBuffer.load(part) as buffer:
            _check(buffer.schema, kinds, path, env)
            for episode in buffer.episodes():
                if episode.state == "open" or episode.begin > 0:
                    yield None
                    continue
                outputs = dict.fromkeys(kinds, gear.Step())
                steps = buffer.collect(episode.ids, outputs, framework="numpy")
                whole = {name: np.array(steps[name]) for name in kinds}
                yield Whole(**whole, terminated=episode.state == "terminated")


def kinds_of(env: Environment) -> Kinds:
    """Shape and dtype of the columns that are needed."""
    action = ((), "int64") if env.num_actions else ((env.action_dim,), "float32")
    return {
        "obs": (env.obs_shape, env.obs_dtype),
        "action": action,
        "reward": ((), "float32"),
    }


def _check(schema: gear.Schema, kinds: Kinds, path: Path, env: Environment) -> None:
    there = {column.name: (tuple(column.shape), column.dtype) for column in schema}
    for name, (shape, dtype) in kinds.items():
        if there.get(name) != (shape, dtype):
            held = "no such column"
            if name in there:
                held = f"{there[name][1]} of shape {there[name][0]}"
            raise gear.InvalidArgument(
                f"[train] data.path={path} does not fit {env.id}: column {name} must be {dtype} "
                f"of shape {shape}, and the data has {held}; choose the env= that it is from"
            )
