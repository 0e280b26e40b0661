"""What saved data is like, and which of its episodes a rank holds or keeps apart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import gear
from gear.train.config import Bc, Config
from gear.train.tasks.environment import Environment
from gear.train.tasks.saved.episodes import Array, episodes, find

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

    def owners(self, num_ranks: int) -> Array:
        """The rank of each episode: those that are learned from by their steps."""
        learned = np.where(self.held_out, 0, self.lengths)
        begins = np.cumsum(learned) - learned
        found: Array = np.minimum(begins * num_ranks // learned.sum(), num_ranks - 1)
        return found


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
    for whole in episodes(path, env):
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
    if len(np.unique(facts.owners(num_ranks)[kept])) < num_ranks:
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
