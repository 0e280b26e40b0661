"""One environment in the middle of an episode: played, stored, and after a restart played again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gear
from gear.train.tasks.environment import Environment


class Playing:
    """An environment, its writer and its running episode.

    The simulator's state is not saved. An episode's reset is seeded by its number and the actions
    taken so far are kept: a continued run plays them again. A simulator that then shows another
    observation is not deterministic; this is said through `note`, and the next episode starts.

    Args:
        begin: the number of the episode that begins.
        saved: the `state` to go on from, and `uid` its open episode in the buffer; None: an episode
            begins.

    Attributes:
        number: of the running episode.
        episode_return: of the running episode, as the simulator gives it.
    """

    def __init__(
        self,
        env: Environment,
        buffer: gear.ReplayBuffer,
        begin: Callable[[], int],
        *,
        note: Callable[[str], None],
        saved: dict[str, Any] | None = None,
        uid: int | None = None,
    ) -> None:
        self.env = env
        self.writer = buffer.writer(episode=uid)
        self._begin = begin
        if saved:
            self._restore(saved, note)
        else:
            self.next_episode()

    @property
    def length(self) -> int:
        """Steps of the running episode."""
        return len(self._actions)

    def next_episode(self) -> None:
        self.number = self._begin()
        self.episode_return = 0.0
        self._actions: list[NDArray[Any] | int] = []
        self.env.reset(self.number)

    def step(self, action: NDArray[Any] | int) -> tuple[dict[str, Any], bool, bool]:
        """The step to store, and whether the episode has terminated or was truncated by it."""
        obs = self.env.obs
        reward, terminated, truncated = self.env.step(action)
        self._actions.append(action)
        self.episode_return += reward
        learned = self.env.learning_reward(reward)
        row = {"action": action, "reward": learned, "terminated": terminated}
        return {**self.env.stored(obs), **row}, terminated, truncated

    def store(self, row: dict[str, Any], terminated: bool, truncated: bool) -> None:
        """What `step` gave; of an ended episode the closing observation, too."""
        self.writer.append(**row)
        if terminated or truncated:
            self.writer.end_episode(terminated=terminated, final=self.env.stored(self.env.obs))

    def state(self) -> dict[str, Any]:
        return {
            "uid": self.writer.episode,
            "number": self.number,
            "actions": np.array(self._actions),
            "view": self.env.view,
            "return": self.episode_return,
        }

    def _restore(self, saved: dict[str, Any], note: Callable[[str], None]) -> None:
        self.number = saved["number"]
        self.episode_return = saved["return"]
        self._actions = list(saved["actions"])
        self.env.replay(self.number, saved["actions"])
        if np.array_equal(self.env.view, saved["view"], equal_nan=True):
            return
        note(
            f"warning: {self.env.id} did not reproduce episode {self.number} from its seed and "
            "actions: starting the next one. This run will differ from an uninterrupted one."
        )
        if self.writer.episode is not None:  # it has a step
            self.writer.end_episode(final=self.env.stored(saved["view"][-1]))
        self.next_episode()
