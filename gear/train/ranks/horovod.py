"""Ranks that Horovod connects."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from torch import Tensor

import gear
from gear.distributed.meeting.launch import SINGLE, find_launch
from gear.train.config import Place
from gear.train.ranks.ranks import Ranks


def start_horovod(place: Place, timeout_s: float) -> Ranks:
    """The ranks that horovodrun, or an mpirun or srun of Horovod's MPI, has started.

    Raises InvalidArgument if Horovod is not installed, or knows another number of ranks.
    """
    if find_spec("horovod") is None:
        raise gear.InvalidArgument(
            "[train] dist=horovod: Horovod is not installed: load the site's module that has it, "
            "or use dist=ddp"
        )
    import horovod.torch as hvd

    hvd.init()  # ends by itself at exit
    if place.world_size is not None:
        launcher, started = "world_size=", place.world_size
    else:
        try:
            launch = find_launch(os.environ, lambda _: True)
        except gear.InvalidArgument:  # of addresses that Horovod needs none of
            launch = SINGLE
        launcher, started = launch.launcher, launch.size
    if started > 1 and started != hvd.size():
        raise gear.InvalidArgument(
            f"[train] dist=horovod: Horovod sees {hvd.size()} rank(s) and {launcher} says {started}"
            ": start them by horovodrun, or by an mpirun or srun of the MPI that Horovod was built "
            "with, or use dist=ddp"
        )
    return HorovodRanks(gear.Group.from_horovod(timeout_s=timeout_s), place.device)


class HorovodRanks(Ranks):
    """As Ranks, without a process group of torch's: Horovod moves tensors."""

    def _connect(self) -> None:
        self.backend = "horovod"

    def _sum(self, flat: Tensor) -> None:
        import horovod.torch as hvd

        self._until_done(hvd.allreduce_async_(flat, name="gear.average", op=hvd.Sum))

    def _send(self, tensor: Tensor) -> None:
        import horovod.torch as hvd

        self._until_done(hvd.broadcast_async_(tensor, 0, name="gear.broadcast"))

    def _until_done(self, handle: Any) -> None:
        """As Ranks._wait: a peer that has ended ends the wait."""
        import horovod.torch as hvd

        self._wait_for(lambda: bool(hvd.poll(handle)))
        hvd.synchronize(handle)
