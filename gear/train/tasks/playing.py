"""One environment in the middle of an episode: played, and after a restart played again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gear.train.tasks.environment import Environment


class Playing:
    """An environment and its running episode.

    The simulator's state is not saved. An episode's reset is seeded by its number and the actions
    taken so far are kept: a continued run plays them again. A simulator that then shows another
    observation is not deterministic; this is said through `note`, and the next episode starts.

    Args:
        begin: the number of the episode that begins.
        saved: the `state` to go on from; None: an episode begins.

    Attributes:
        number: of the running episode.
        episode_return: of the running episode, as the simulator gives it.
        given_up: what the buffer keeps of the last observation of a saved episode that could not be
            played again; None: it goes on.
    """

    def __init__(
        self,
        env: Environment,
        begin: Callable[[], int],
        *,
        note: Callable[[str], None],
        saved: dict[str, Any] | None = None,
    ) -> None:
        self.env = env
        self.given_up: Mapping[str, NDArray[Any]] | None = None
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

    def state(self) -> dict[str, Any]:
        return {
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
        self.given_up = self.env.stored(saved["view"][-1])
        self.next_episode()
