"""The job that this process is a rank of."""

from __future__ import annotations

import os

from gear.emu.job import Job
from gear.emu.launched import rank_in
from gear.errors import InvalidArgument

_installed: Job | None = None


def present() -> Job | None:
    """The job that was installed, or the one whose file ``GEAR_EMU`` names; None: neither."""
    if _installed is None and (path := os.environ.get("GEAR_EMU")):
        settle(Job.load(path))
    return _installed


def current() -> Job:
    """The same.

    Raises:
        InvalidArgument: there is none.
    """
    job = present()
    if job is None:
        raise InvalidArgument(
            "[emu] this process is of no emulated job: call gear.emu.install(gear.emu.Job(...)), or"
            " set GEAR_EMU to the file of one"
        )
    return job


def settle(job: Job) -> None:
    """This process has that job from now on, and no other one."""
    global _installed
    if _installed is not None and _installed != job:
        raise InvalidArgument("[emu] this process is a rank of another job: install one a process")
    own_rank(job)
    _installed = job


def own_rank(job: Job) -> int:
    """Of this process in the world of `job`, a real one.

    Raises:
        InvalidArgument: as `rank_in`.
    """
    return rank_in(job, os.environ)
