"""What a training has come to: the loss of each step, the rate, and whether it has learnt."""

from __future__ import annotations

import math
import time
from argparse import ArgumentParser, Namespace

from ranks import Failed, Ranks
from torch import Tensor, nn


def add_options(
    parser: ArgumentParser, *, steps: int, batch_size: int, rate: float, below: float
) -> None:
    """The options of training that all programs have, with a program's defaults."""
    training = parser.add_argument_group("training")
    training.add_argument("--steps", type=int, default=steps, help="of the optimizer")
    training.add_argument(
        "--batch-size", type=int, default=batch_size, help="items of a step, of all ranks together"
    )
    training.add_argument("--lr", type=float, default=rate, help="learning rate")
    training.add_argument("--seed", type=int, default=1, help="of weights and of made-up data")
    training.add_argument(
        "--below",
        type=float,
        default=below,
        metavar="FRACTION",
        help="fail unless the loss falls below this fraction of what it was at first; 0: never",
    )


class Progress:
    """Told of every step by all ranks; says some of them.

    Attributes:
        losses: the mean over the ranks of each step.
    """

    def __init__(self, ranks: Ranks, options: Namespace, items: str) -> None:
        self.losses: list[float] = []
        self._ranks = ranks
        self._options = options
        self._items = items
        self._every = max(1, options.steps // 10)
        self._begun = 0.0

    def step(self, loss: Tensor) -> bool:
        """One more has been made; whether it was the last. Collective."""
        self.losses.append(self._ranks.mean(loss))
        made = len(self.losses)
        if made == 1:
            self._begun = time.perf_counter()  # what is made at the first step is left out
        if made % self._every == 0:
            self._ranks.say(f"step {made} of {self._options.steps}: loss {self.losses[-1]:.4g}")
        return made >= int(self._options.steps)

    def finish(self, model: nn.Module) -> None:
        """Says what the training has come to. Collective.

        Args:
            model: what all ranks hold alike.

        Raises:
            Failed: the loss is no number or has not fallen enough, or the weights differ.
        """
        took_s = time.perf_counter() - self._begun
        tenth = math.ceil(len(self.losses) / 10)
        first, last = (sum(part) / tenth for part in (self.losses[:tenth], self.losses[-tenth:]))
        self._ranks.say(f"loss {first:.4g} at first, {last:.4g} at the end (means of {tenth})")
        if len(self.losses) > 1:
            made = (len(self.losses) - 1) * self._options.batch_size
            self._ranks.say(f"{made / took_s:.3g} {self._items}/s, all ranks together")
        below = self._options.below
        if not math.isfinite(last):
            raise Failed(f"the loss is {last}: try a smaller --lr")
        if below and not last < below * first:
            raise Failed(
                f"the loss has fallen to {last / first:.3f} of what it was at first, and not below "
                f"{below:g}: give more --steps, or another --below"
            )
        self._ranks.check_equal_weights(model)
        self._ranks.say("all ranks have ended with the same weights")
