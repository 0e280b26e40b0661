"""Ranks that Horovod connects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

from torch import Tensor

import gear
from gear.distributed.meeting.from_torch import waiting_for
from gear.distributed.meeting.launch import SINGLE, find_launch
from gear.distributed.timeout import SLICE_S, done_within
from gear.train.config import Place
from gear.train.ranks.ranks import ROLL_CALL_S, Ranks


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

    try:
        launch = find_launch(os.environ, lambda _: True)
    except gear.InvalidArgument:  # of addresses that Horovod needs none of
        launch = SINGLE
    init: AbstractContextManager[object] = nullcontext()
    if launch.size != 1:
        init = waiting_for(launch, "the other ranks, in Horovod's init", None)
    with init:
        hvd.init()  # ends by itself at exit
    launcher, started = launch.launcher, launch.size
    if place.world_size is not None:
        launcher, started = "world_size=", place.world_size
    if started > 1 and started != hvd.size():
        raise gear.InvalidArgument(
            f"[train] dist=horovod: Horovod sees {hvd.size()} rank(s) and {launcher} says {started}"
            ": start them by horovodrun, or by an mpirun or srun of the MPI that Horovod was built "
            "with (srun --mpi=pmix for Open MPI, --mpi=pmi2 for MPICH; in a template "
            "SLURM_MPI_TYPE), or use dist=ddp"
        )
    return HorovodRanks(gear.Group.from_horovod(timeout_s=timeout_s), place.device)


class HorovodRanks(Ranks):
    """As Ranks, without a process group of torch's: Horovod moves tensors."""

    def _connect(self) -> None:
        self.backend = "horovod"

    def _sum(self, flat: Tensor) -> None:
        import horovod.torch as hvd

        self._finish(hvd.allreduce_async_(flat, name="gear.average", op=hvd.Sum))

    def _send(self, tensor: Tensor) -> None:
        import horovod.torch as hvd

        self._finish(hvd.broadcast_async_(tensor, 0, name="gear.broadcast"))

    def until_done(self, handles: Iterable[Any]) -> None:
        """Returns when Horovod has done what these stand for, well or not. Its own `synchronize`
        knows no time-out: here a peer that has ended, or that hangs, ends the wait."""
        with self._naming_the_missing():
            for handle in handles:
                self._wait_until_done(handle)

    def _finish(self, handle: Any) -> None:
        import horovod.torch as hvd

        self._wait_until_done(handle)
        hvd.synchronize(handle)

    def _wait_until_done(self, handle: Any) -> None:
        import horovod.torch as hvd

        self._wait_for(lambda: done_within(SLICE_S, lambda: hvd.poll(handle)))

    def _wait_for(self, is_done: Callable[[], bool]) -> None:
        try:
            super()._wait_for(is_done)
        except RuntimeError:
            if not self.group.missing(0.0):
                # Names those that hang.
                self.group.barrier(ROLL_CALL_S, waited_s=self.group.timeout_s)
            raise
