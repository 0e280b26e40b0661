"""How a loader chooses the steps (or episodes) of a batch.

With ``unit="step"``, a sampler draws steps. With ``unit="episode"``, it draws ended episodes: the
anchor is the first stored step, and `ReplayBuffer.update` with these ids sets the priorities of the
episodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from gear.errors import InvalidArgument

MOST_ALPHA = 4.0  # beyond it, priorities below 1/1000 of the largest are drawn alike: see Weighted


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

    ``batch.weights`` are (N P(i))^-beta divided by their maximum over the batch, or over everything
    that may be drawn. O(log N) a draw and an update.

    What counts is how priorities compare: the same factor on all of them changes no probability by
    more than 2^-20 of itself, and a power of two with alpha 1 changes no draw. A priority of 0 is
    never drawn, whatever alpha; where all are 0, `Loader.__next__` raises `InvalidArgument` (where
    a GPU draws, in a later call, and batches before it have probability and weight 0). For TD
    errors add a small number, as `gear train` adds 1e-6: an error that vanished once would never
    be looked at again.

    Weights are integers of 40 bits beside that of the largest priority seen so far (of one less for
    each doubling of the capacity beyond 8 M steps a rank). So p^alpha is exact to 2^-20 of itself
    down to 2^-20 of the largest, and what is above 0 but below 2^-40 of it is drawn as often as
    2^-40: ``stats()["saturated_weights"]`` counts these. Where the largest p^alpha passes a power
    of two, the append or update that raised it computes all weights anew, O(capacity).

    Args:
        alpha: 0 is uniform, 1 is proportional to the priority; at most `MOST_ALPHA`.
        beta: 0 corrects nothing, 1 corrects the bias fully; `Loader.beta` changes it while running.
        normalize: by whose largest (N P(i))^-beta ``batch.weights`` are divided: ``"batch"``, that
            of the batch, of all ranks' together; or ``"buffer"``, that of everything that may be
            drawn, so that a step's weight does not depend on what it is drawn with. The second
            costs O(log N) more an update.

    Raises:
        InvalidArgument: another ``normalize``.
    """

    policy: ClassVar[str] = "weighted"
    alpha: float = 0.6
    beta: float = 0.4
    normalize: str = field(default="batch", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normalize not in ("batch", "buffer"):
            raise InvalidArgument(
                f"[sampler] normalize {self.normalize!r}: 'batch' and 'buffer' are allowed"
            )


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
