"""What a rank does by itself for a batch, measured here: a real buffer, loader and draw."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import numpy as np

import gear
from gear import _core
from gear.emu.models.shape import Shape
from gear.errors import InvalidArgument

ROOM = 256 << 20  # bytes of rows: more than caches hold
MOST_STEPS = 1 << 20
FILL = 16 << 20  # bytes that are appended at once
WARM, LEAST, MOST = 3, 9, 200  # calls: that do not count, that do at least and at most
MOST_S = 1.0  # for so long beyond the least


@dataclass(frozen=True)
class Alone:
    """A rank that has a buffer to itself.

    Args:
        buffer: as `filled` makes it.
        batch: items that a rank gets.
        device: where they go, as `gear.ReplayBuffer.loader` takes it.
    """

    buffer: gear.ReplayBuffer
    batch: int
    device: str

    def draw_s(self, shape: Shape, locality: str) -> float:
        """Seconds of a rank's draws in a batch of all ranks of that shape, without its messages: it
        looks at the draws of all. By the host, also where GPUs of several nodes gather.

        Raises:
            InvalidArgument: more ranks or items than a group draws.
        """
        shard = self.buffer._open()
        nodes = [rank // shape.per_node for rank in range(shape.ranks)]
        return time_call(_core.LoneDraw(shard, self.batch, locality, nodes).draw)

    def own_s(self) -> float:
        """Seconds of the rest that a rank does by itself for a batch, all of its rows its own: by
        the host, in a group of this rank; by a GPU, until a loader has filled it."""
        on_gpu = self.device != "cpu"
        if not on_gpu and self.buffer._peers is None:  # which a group of one rank does without
            (carrier,) = _core.loopback_transports(1, 60.0)
            self.buffer._peers = _core.Peers(self.buffer._open(), carrier, [0], hide_names=False)
        with self.buffer.loader(
            self.batch,
            sampler=gear.Uniform(),
            outputs={"row": gear.Step()},
            device=self.device,
            framework="torch" if on_gpu else "numpy",
            prefetch=0,
            seed=0,
        ) as loader:

            def fill() -> None:
                next(loader)
                if on_gpu:
                    _synchronize(self.device)

            whole_s = time_call(fill)
        return whole_s if on_gpu else max(0.0, whole_s - self.draw_s(Shape(1), "first"))


@contextmanager
def filled(
    batch: int, row_bytes: int, device: str, group: gear.Group | None = None
) -> Iterator[gear.ReplayBuffer]:
    """A buffer of one column, ``row``, whose rows are more than caches hold, and a batch at least.

    On a tier that the ranks of a node map: ``shared``, or that of the device.

    Raises:
        OutOfMemory: the rows find no room.
    """
    steps = max(batch, min(MOST_STEPS, ROOM // row_bytes))
    rows = np.zeros((max(1, min(steps, FILL // row_bytes)), row_bytes), np.uint8)
    name = f"gear-emu-replay-{os.getpid()}" if device == "cpu" and group is None else None
    with gear.ReplayBuffer(
        gear.Schema([gear.Column("row", (row_bytes,), "uint8")]),
        steps,
        tier="shared" if device == "cpu" else device.replace("cuda", "device"),
        name=name,
        group=group,
    ) as buffer:
        with buffer.writer() as writer:
            for first in range(0, steps, len(rows)):
                writer.extend(row=rows[: steps - first])
            writer.end_episode(terminated=True)
        yield buffer


def check_device(device: str, shapes: Iterable[Shape]) -> None:
    """Refuses what cannot be measured here.

    Raises:
        InvalidArgument: no such device, in this build or at all; or ranks of one node with GPUs.
    """
    on_gpu = _core.parse_device(device) >= 0
    for shape in shapes:
        if on_gpu and shape.nodes == 1 and shape.ranks > 1:
            raise InvalidArgument(
                f"[emu] device {device!r} and {shape.ranks} ranks on one node, whose GPUs draw"
                " together without the host: give ranks of several nodes, or device 'cpu', or"
                " measure it on that node"
            )


def time_call(call: Callable[[], object]) -> float:
    """The median of several calls, in seconds."""
    for _ in range(WARM):
        call()
    found: list[float] = []
    until = time.perf_counter() + MOST_S
    while len(found) < LEAST or (len(found) < MOST and time.perf_counter() < until):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return median(found)


def _synchronize(device: str) -> None:
    import torch

    torch.cuda.synchronize(device)
