"""How a loader chooses the steps (or episodes) of a batch.

With ``unit="step"``, a sampler draws steps. With ``unit="episode"``, it draws ended episodes: the
anchor is the first stored step, and `ReplayBuffer.update` with these ids sets the priorities of the
episodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from gear.errors import InvalidArgument

MOST_ALPHA = 4.0  # p^alpha has 24 bits below 1: beyond it, priorities below 1/64 are drawn alike


@dataclass(frozen=True)
class Sampler:
    """Base of the samplers; not used by itself."""

    policy: ClassVar[str]
    unit: str = field(default="step", kw_only=True)

    def __post_init__(self) -> None:
        if self.unit not in ("step", "episode"):
            raise InvalidArgument(f"[sampler] unit {self.unit!r}: 'step' and 'episode' are allowed")


@dataclass(frozen=True)
class Uniform(Sampler):
    """With replacement, P(i) = 1 / N. O(log N) a draw."""

    policy: ClassVar[str] = "uniform"


@dataclass(frozen=True)
class Weighted(Sampler):
    """With replacement, P(i) = p_i^alpha / sum p^alpha (Schaul et al., arXiv:1511.05952).

    ``batch.weights`` are (N P(i))^-beta divided by their maximum over the batch. O(log N) a draw
    and an update.

    Args:
        alpha: 0 is uniform, 1 is proportional to the priority; at most `MOST_ALPHA`.
        beta: 0 corrects nothing, 1 corrects the bias fully; `Loader.beta` changes it while running.
    """

    policy: ClassVar[str] = "weighted"
    alpha: float = 0.6
    beta: float = 0.4


@dataclass(frozen=True)
class Sequential(Sampler):
    """Every step (episode) once per epoch; iterating the loader again starts the next epoch.

    Args:
        shuffle: True: a new order every epoch (a keyed permutation, not a list of N); False:
            episodes in creation order, steps in time order.
        drop_last: True leaves out the last batch of an epoch if it is short.
    """

    policy: ClassVar[str] = "sequential"
    shuffle: bool = True
    drop_last: bool = False


@dataclass(frozen=True)
class Fifo(Sampler):
    """The oldest ``batch_size`` each time; with ``max_times_sampled=1`` the buffer is a queue.

    What is in flight (``prefetch``) is nobody else's: it counts when it is delivered, and comes
    back to its place when the loader is closed.
    """

    policy: ClassVar[str] = "fifo"


@dataclass(frozen=True)
class Lifo(Sampler):
    """The newest ``batch_size`` each time; with ``max_times_sampled=1`` the buffer is a stack."""

    policy: ClassVar[str] = "lifo"


@dataclass(frozen=True)
class TopK(Sampler):
    """The ``batch_size`` largest priorities, largest first; among equals, the lower slot first.

    O(N) a batch: one scan of the priorities.
    """

    policy: ClassVar[str] = "topk"
