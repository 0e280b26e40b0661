"""The ranks that share a buffer."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gear.errors import InvalidArgument

# Where launchers put the number of processes they started.
WORLD_SIZE_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


@dataclass(frozen=True)
class Group:
    """This process's place among the ranks that share a buffer."""

    rank: int = 0
    size: int = 1

    @staticmethod
    def single() -> Group:
        """This process alone."""
        return Group()

    @staticmethod
    def from_env() -> Group:
        """The group that the launcher made.

        Raises:
            InvalidArgument: the launcher started several processes; a buffer of this version is
                shared by one.
        """
        for variable in WORLD_SIZE_VARIABLES:
            value = os.environ.get(variable, "1")
            # An interactive or batch step of Slurm sets SLURM_NTASKS without starting tasks.
            if variable == "SLURM_NTASKS" and "SLURM_STEP_ID" not in os.environ:
                continue
            if value != "1":
                raise InvalidArgument(
                    f"[group] {variable}={value}: this version shares a buffer among 1 rank; "
                    "start one process, or give every process a buffer of its own with "
                    "gear.Group.single()"
                )
        return Group.single()
