"""Greedy episodes beside the training: how well the run would act if it stopped exploring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gear.train.algo import Algorithm
from gear.train.config import Config, Puzzles
from gear.train.ranks import Ranks
from gear.train.tasks.environment import Environment
from gear.train.tasks.make import make_environment
from gear.train.tasks.seeding import evaluation_seed, restore_rng, rng_state


@dataclass(frozen=True)
class Evaluated:
    """Of one evaluation, over the episodes of all ranks in the order of their numbers.

    Attributes:
        scores: on data that is not learned from.
    """

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    scores: Mapping[str, float]

    @property
    def value(self) -> float:
        """What a curve shows: the mean return; where nothing is played, the first of the scores."""
        return self.mean_return if self.returns else next(iter(self.scores.values()))

    @property
    def mean_return(self) -> float:
        return float(np.mean(self.returns))

    @property
    def mean_length(self) -> float:
        return float(np.mean(self.lengths))


class Evaluation:
    """`eval_episodes` episodes, divided among the ranks, in an environment of their own.

    They begin alike at every evaluation and at any number of ranks, so that their returns can be
    compared. The training does not notice: its environment and its generators stay as they are.
    """

    def __init__(self, config: Config, ranks: Ranks) -> None:
        self._config = config
        self._ranks = ranks
        self._env: Environment | None = None

    def is_due(self, env_steps: int, evaluated: Sequence[int]) -> bool:
        """Whether a multiple of `eval_every` lies between the last of these evaluations and now."""
        every = self._config.eval_every
        last = evaluated[-1] if evaluated else 0
        return every > 0 and env_steps // every > last // every

    def run(self, algorithm: Algorithm, asked_to_stop: Callable[[], bool]) -> Evaluated | None:
        """Collective. None if a rank was asked to stop meanwhile: then there is no time for it."""
        ranks = self._ranks
        algorithm.ready_to_play()
        played = ranks.together(
            lambda: self._play(algorithm, asked_to_stop), "gear train: evaluation"
        )
        found = ranks.exchange(played)
        if any(each is None for each in found):
            return None
        numbered = sorted(episode for each in found for episode in each or [])
        returns = tuple(episode[1] for episode in numbered)
        lengths = tuple(int(episode[2]) for episode in numbered)
        return Evaluated(returns, lengths, algorithm.scores())

    def close(self) -> None:
        if self._env:
            self._env.close()

    def _play(
        self, algorithm: Algorithm, asked_to_stop: Callable[[], bool]
    ) -> list[tuple[int, float, int]] | None:
        """Number, return and length of each of this rank's episodes."""
        if isinstance(self._config.data, Puzzles):
            return []  # nothing is played
        generators = rng_state()
        try:
            env = self._env = self._env or self._make()
            played = []
            for number in range(self._ranks.rank, self._config.eval_episodes, self._ranks.size):
                env.reset(number)
                player = algorithm.player()
                total, reward, length, ended = 0.0, 0.0, 0, False
                while not ended:
                    if asked_to_stop():
                        return None
                    reward, terminated, truncated = env.step(player(env.view, reward))
                    total, length, ended = total + reward, length + 1, terminated or truncated
                played.append((number, total, length))
            return played
        finally:
            restore_rng(generators)

    def _make(self) -> Environment:
        return make_environment(self._config.env, evaluation_seed(self._config.seed))
