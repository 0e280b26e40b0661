"""Saved experience as data to learn from: whole episodes, with the return still to come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gear
from gear.train.config import Bc, Config
from gear.train.record import checkpoint
from gear.train.tasks.environment import Environment

Array = NDArray[Any]
RETURN_TO_GO = "return_to_go"
BEST_SHARE = 0.1


@dataclass(frozen=True)
class Facts:
    """Of all the data, whichever rank holds it.

    Attributes:
        path: what was read.
        returns, lengths: of each episode, in the order of the data.
        held_out: of each episode, whether it is kept apart and not learned from.
        left_out: episodes that were not whole: open, or without their beginning.
        obs_mean, obs_std: of each entry of the observation, float64; of what is learned from.
        largest: the largest absolute return-to-go.
    """

    path: Path
    returns: Array
    lengths: Array
    held_out: Array
    left_out: int
    obs_mean: Array
    obs_std: Array
    largest: float

    @property
    def best_return(self) -> float:
        """Mean return of the best tenth of the episodes."""
        count = max(1, round(BEST_SHARE * len(self.returns)))
        return float(np.sort(self.returns)[-count:].mean())

    def __str__(self) -> str:
        left = f", {self.left_out} that are not whole left out" if self.left_out else ""
        if self.held_out.any():
            left += f", {self.held_out.sum():,} held out"
        return (
            f"{len(self.returns):,} episodes of {self.path}, {self.lengths.sum():,} steps, "
            f"returns {self.returns.min():,.1f} to {self.returns.max():,.1f}, mean "
            f"{self.returns.mean():,.1f}, of the best tenth {self.best_return:,.1f}{left}"
        )


@dataclass(frozen=True)
class _Whole:
    """An episode from its first to its last step: [T, ...]."""

    obs: Array
    action: Array
    reward: Array
    terminated: bool

    @property
    def to_go(self) -> Array:
        """What is still to come at each step, its own reward included; float64 [T]."""
        return np.cumsum(self.reward[::-1].astype(np.float64))[::-1]


def look(config: Config, env: Environment, num_ranks: int) -> Facts:
    """Reads all the data at data.path once, without keeping it.

    Raises InvalidArgument if nothing is there, if it does not fit the environment, or if there is
    less than an episode for each of so many ranks, or none of those to hold out.
    """
    path = find(config.data.path)
    share = config.algo.held_out if isinstance(config.algo, Bc) else 0.0
    returns, lengths, largest, left_out = [], [], 0.0, 0
    held_out: list[bool] = []
    total, squares = np.zeros(env.obs_shape), np.zeros(env.obs_shape)
    for whole in _episodes(path, env):
        if whole is None:
            left_out += 1
            continue
        to_go = whole.to_go
        returns.append(to_go[0])
        lengths.append(len(to_go))
        held_out.append(is_held_out(config.seed, len(held_out), share))
        if held_out[-1]:
            continue
        largest = max(largest, float(np.abs(to_go).max()))
        total += whole.obs.sum(0, dtype=np.float64)
        squares += np.square(whole.obs, dtype=np.float64).sum(0)
    if not returns:
        raise gear.InvalidArgument(
            f"[train] data.path={path} holds no whole episode, and only of these the return is "
            "known: let the run that acts go on for longer"
        )
    if share and not 0 < sum(held_out) < len(held_out):
        raise gear.InvalidArgument(
            f"[train] algo.held_out={share} keeps {sum(held_out)} of the {len(held_out)} episodes "
            f"of {path} apart with seed={config.seed}: give a share, or data, that leaves episodes "
            "on both sides, or 0"
        )
    kept = np.array(held_out) == 0
    steps = np.array(lengths)[kept].sum()
    mean = total / steps
    spread = np.sqrt(np.maximum(squares / steps - mean**2, 0.0))
    facts = Facts(
        *(path, np.array(returns), np.array(lengths), ~kept, left_out, mean, spread, largest)
    )
    if len(np.unique(_owners(facts, num_ranks)[kept])) < num_ranks:
        raise gear.InvalidArgument(
            f"[train] data.path={path} holds {kept.sum()} whole episodes, and by steps not one "
            f"for each of {num_ranks} ranks: start fewer ranks, or collect more"
        )
    return facts


def is_held_out(seed: int, episode: int, share: float) -> bool:
    """Whether this episode, by its number in the data, is one of `share` that are kept apart.

    Of seed and number alone: the same on every rank, and as the data grow.
    """
    drawn = np.random.SeedSequence([seed, episode, 3]).generate_state(1)[0]
    return bool(drawn < share * 2**32)


def open_saved(
    config: Config, env: Environment, facts: Facts, group: gear.Group, *, held_out: bool = False
) -> gear.ReplayBuffer:
    """A buffer of the columns obs, action, return_to_go, float32; collective.

    A return-to-go is the sum of an episode's rewards from a step to its end, as they were stored
    (clipped where the run clipped them). Every rank reads all the data and keeps its share:
    consecutive episodes, in the order of the data, with about as many steps as other ranks have.

    held_out: of the episodes that are kept apart, in memory of this rank alone; else of the others.
    """
    mine = (_owners(facts, group.size) == group.rank) & (facts.held_out == held_out)
    page_steps = config.replay.page_steps
    pages = -(-facts.lengths[mine] // page_steps)
    columns = [
        *(gear.Column(name, *kind) for name, kind in _kinds(env).items() if name != "reward"),
        gear.Column(RETURN_TO_GO, (), "float32"),
    ]
    buffer = gear.ReplayBuffer(
        gear.Schema(columns),
        max(1, int(pages.sum())) * page_steps,
        tier="host" if held_out else config.replay.tier,
        page_steps=page_steps,
        group=gear.Group.single() if held_out else group,
    )
    found = (whole for whole in _episodes(facts.path, env) if whole)
    with buffer.writer() as writer:
        for keep, whole in zip(mine, found, strict=True):
            if keep:
                to_go = whole.to_go.astype(np.float32)
                writer.extend(obs=whole.obs, action=whole.action, return_to_go=to_go)
                writer.end_episode(terminated=whole.terminated)
    return buffer


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


def _owners(facts: Facts, num_ranks: int) -> Array:
    """The rank of each episode: those that are learned from by their steps."""
    learned = np.where(facts.held_out, 0, facts.lengths)
    begins = np.cumsum(learned) - learned
    owners: Array = np.minimum(begins * num_ranks // learned.sum(), num_ranks - 1)
    return owners


def _episodes(path: Path, env: Environment) -> Iterator[_Whole | None]:
    """The episodes in the order of the ranks that saved them; None for one that is not whole."""
    kinds = _kinds(env)
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
                yield _Whole(**whole, terminated=episode.state == "terminated")


def _kinds(env: Environment) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of the columns that are needed."""
    action = ((), "int64") if env.num_actions else ((env.action_dim,), "float32")
    return {
        "obs": (env.obs_shape, env.obs_dtype),
        "action": action,
        "reward": ((), "float32"),
    }


def _check(
    schema: gear.Schema, kinds: dict[str, tuple[tuple[int, ...], str]], path: Path, env: Environment
) -> None:
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
