"""An episode as what learned from windows sees it while it plays."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gear.train.tasks.environment import Environment
from gear.train.tasks.saved import RETURN_TO_GO

Array = NDArray[Any]


class Played:
    """The last `context` steps: what a window of the data that ends at the newest step holds.

    The window has `context` rows from the first one on, so that its shape stays the same; what
    stands behind the newest step is padding, which causal attention does not look at.

    Args:
        target: the return of the whole episode that is asked for.
    """

    def __init__(self, context: int, env: Environment, target: float) -> None:
        self._context = context
        shape, dtype = ((), np.int64) if env.num_actions else ((env.action_dim,), np.float32)
        self._unknown: Array = np.zeros(shape, dtype)
        self._steps: deque[list[Any]] = deque(maxlen=context)
        self._count = 0
        self._to_go = target

    def see(self, obs: Array, reward: float) -> None:
        """What the next step shows, and what the step before it earned."""
        self._to_go -= reward
        self._steps.append([self._to_go, obs, self._unknown])
        self._count += 1

    def act(self, action: Array) -> None:
        self._steps[-1][2] = action.astype(self._unknown.dtype)

    def window(self, device: torch.device) -> tuple[dict[str, Tensor], int]:
        """return_to_go, obs, action and step (their numbers), each [1, context, ...] as of a batch
        with one window; and the row of the newest step."""
        columns = [np.stack(column) for column in zip(*self._steps, strict=True)]
        there = len(self._steps)
        first = self._count - there
        columns.append(np.arange(first, self._count))
        to_go, obs, action, step = (self._padded(c, device) for c in columns)
        steps = {RETURN_TO_GO: to_go.float(), "obs": obs, "action": action, "step": step}
        return steps, there - 1

    def _padded(self, column: Array, device: torch.device) -> Tensor:
        whole = np.zeros((1, self._context, *column.shape[1:]), column.dtype)
        whole[0, : len(column)] = column
        return torch.from_numpy(whole).to(device)
