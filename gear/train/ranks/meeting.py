"""How the ranks of a run meet: whatever started them, or by hand."""

from __future__ import annotations

import os
from collections.abc import Mapping

import gear
from gear.distributed.meeting.launch import ALONE, Launch, find_launch, installed
from gear.distributed.meeting.meeting_point import decline, has_come
from gear.distributed.timeout import SLICE_S
from gear.emu import Job
from gear.emu.launched import counted
from gear.emu.present import present
from gear.train.config import Ddp, Deepspeed, Horovod, Place
from gear.train.ranks.horovod import start_horovod
from gear.train.ranks.leaving import leave_unmet
from gear.train.ranks.ranks import Ranks


def decline_for(words: Mapping[str, object], error: BaseException) -> None:
    """Before the ranks have met: tells the others of this launch the error that keeps this process
    from coming, so that they end at once. Ctrl-C is told to those that can hear of it at once.

    words: rank, world_size, dist.master_addr and dist.master_port where they are given by hand.
    """
    try:
        if words.get("world_size") is None:
            job = present()
            own = counted(job, os.environ) if job else {}
            launch = find_launch({**os.environ, **own}, installed)
        else:
            launch = Launch(
                "environment",
                int(str(words["rank"])),
                int(str(words["world_size"])),
                "store",
                str(words.get("dist.master_addr", "127.0.0.1")),
                int(str(words.get("dist.master_port", 29500))),
            )
    except (KeyError, ValueError, gear.GearError, OSError):
        return  # nothing tells who the others are
    if isinstance(error, KeyboardInterrupt):
        if has_come(launch):
            return
        decline(launch, str(error) or "[train] gear train: Ctrl-C", SLICE_S * 3)
    else:
        decline(launch, str(error))


def start_ranks(place: Place) -> Ranks:
    """The ranks that the group `dist` asks for; waits for all of them.

    Raises InvalidArgument if several processes were started and would train apart or a rank has not
    the device, TransportError if one does not come.
    """
    job = present()
    if job is not None:
        return _start_real(job, place)
    if isinstance(place.dist, Horovod):
        return start_horovod(place, place.dist.timeout_s)
    launch = find_launch(os.environ, installed)
    by_hand = place.world_size is not None
    if not isinstance(place.dist, Ddp):
        size = place.world_size if by_hand else launch.size
        if size != 1:
            who = "rank= and world_size= say" if by_hand else f"{launch.launcher} says"
            alone = "" if by_hand else f", or, if this process is alone, give it {ALONE}"
            raise gear.InvalidArgument(
                f"[train] {who} that this is one of {size or 'several'} processes, and each would "
                f"train by itself: add dist=ddp, or start one process{alone}"
            )
        return Ranks.single(place.device)
    if by_hand:
        own = {"RANK": place.rank, "WORLD_SIZE": place.world_size}
        master = {"MASTER_ADDR": place.dist.master_addr, "MASTER_PORT": place.dist.master_port}
        os.environ.update({name: str(value) for name, value in {**own, **master}.items()})
    return Ranks(_meet(place.dist), place.device, place.dist.backend)


def _meet(dist: Ddp) -> gear.Group:
    try:
        return gear.Group.from_env(timeout_s=dist.timeout_s)
    except (gear.TransportError, KeyboardInterrupt) as error:
        leave_unmet(error)
        raise


def _start_real(job: Job, place: Place) -> Ranks:
    """The real ranks of an emulated job: they act, store and draw.

    Raises InvalidArgument for ways to train that go round torch's process groups, or need more of
    the other ranks than a group's operations.
    """
    by_hand, dist = place.world_size is not None, place.dist
    if by_hand or not isinstance(dist, Ddp) or isinstance(dist, Deepspeed | Horovod):
        named = "rank= and world_size=" if by_hand else f"dist={dist.name}"
        raise gear.InvalidArgument(
            f"[train] {named} in an emulated job of {job.ranks} ranks: dist=ddp and dist=fsdp2 are "
            "allowed, with the ranks that gear emu run has started"
        )
    own = counted(job, os.environ)
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        group = _meet(dist)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return Ranks(group, place.device, dist.backend, job)
