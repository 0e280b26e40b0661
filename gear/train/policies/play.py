"""One episode, played and remembered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gear.train.algo.base import Player
from gear.train.tasks.environment import Environment

Array = NDArray[Any]


@dataclass(frozen=True)
class Played:
    """An episode of T steps.

    Attributes:
        obs, actions: of each step, [T, ...]; final: the closing observation.
        rewards: as the simulator gives them, float64 [T]; learned: as replay stores them.
        terminated: or truncated.
        frames: T + 1 of them, where it was drawn.
    """

    obs: Array
    actions: Array
    rewards: Array
    learned: Array
    final: Array
    terminated: bool
    frames: list[Array]

    @property
    def total(self) -> float:
        """The undiscounted return."""
        return float(self.rewards.sum())


def play(env: Environment, number: int, player: Player, *, draws: bool = False) -> Played:
    """Episode `number` from its reset to its end."""
    env.reset(number)
    seen, taken, earned, learned = [], [], [], []
    frames = [env.frame()] if draws else []
    reward, terminated, truncated = 0.0, False, False
    while not (terminated or truncated):
        seen.append(env.obs)
        taken.append(np.asarray(player(env.view, reward)))
        reward, terminated, truncated = env.step(taken[-1])
        earned.append(reward)
        learned.append(env.learning_reward(reward))
        if draws:
            frames.append(env.frame())
    return Played(
        obs=np.stack(seen),
        actions=np.stack(taken),
        rewards=np.array(earned),
        learned=np.array(learned),
        final=env.obs,
        terminated=terminated,
        frames=frames,
    )
