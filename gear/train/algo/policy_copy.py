"""The network that acts, beside the one that learns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Generic, TypeVar

import torch
from torch import nn

N = TypeVar("N", bound=nn.Module)

SMALL = 1_000_000  # parameters up to which a core acts sooner than a GPU answers


class PolicyCopy(Generic[N]):
    """What acts: the learning network as it was after the last `every`-th update.

    Of a network on a GPU the copy is in page-locked memory of the host, where acting launches
    nothing, or, if it is not small, on the same GPU, where acting has a stream of its own. So
    acting waits only for an update that it is to see. On the CPU, a network that would be copied
    after every update acts itself.

    Attributes:
        network: as it was copied last; use it inside `acting`.
        device: where it takes observations.
        is_older: it may be older than the learning network, and is state of its own.
    """

    def __init__(self, learning: N, every: int) -> None:
        self._learning = [p.detach() for p in learning.parameters()]
        self._every = every
        self.is_older = every > 1
        self.device = self._learning[0].device
        self.network = learning
        self._copied: torch.cuda.Event | None = None
        self._stream: torch.cuda.Stream | None = None
        if self.device.type == "cuda":
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        if self.is_older or self._copied:
            self.network = deepcopy(learning).requires_grad_(False)
        if self._copied and sum(p.numel() for p in self._learning) <= SMALL:
            self.device = torch.device("cpu")
            for parameter in self.network.parameters():
                parameter.data = parameter.data.cpu().pin_memory()
        elif self._copied:
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def updated(self, updates: int) -> None:
        """Says that the learning network has had so many updates."""
        if updates % self._every == 0:
            self.refresh()

    def refresh(self) -> None:
        """Copies, after what the current stream has; the host does not wait."""
        copies = [p.detach() for p in self.network.parameters()]
        if copies[0].data_ptr() != self._learning[0].data_ptr():
            torch._foreach_copy_(copies, self._learning, non_blocking=True)
        if self._copied:
            self._copied.record()

    @contextmanager
    def acting(self) -> Iterator[N]:
        """The network; a GPU's work in here goes to the stream of acting."""
        if self._copied and self._stream:
            self._stream.wait_event(self._copied)
            with torch.cuda.stream(self._stream):
                yield self.network
        else:
            if self._copied:
                self._copied.synchronize()
            yield self.network
