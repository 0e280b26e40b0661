"""One suite over everything that carries bytes between ranks, and over numbers of ranks.

The ranks of a group are started once a session; they play all programs, and the tests look at what
they wrote down.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from distributed.launch import IMPLEMENTATIONS, Arrays, Ended, launch
from distributed.refusals import attempts
from distributed.scenarios import SCENARIOS
from gear import _core

without_fabric = pytest.mark.skipif(
    not _core.build_info()["fabric"], reason="GEAR was built without the transport fabric"
)
MARKS = {
    "mpi": [pytest.mark.mpi],
    "nccl": [pytest.mark.gpu],
    "fabric": [without_fabric],
    "libfabric": [without_fabric],
}
# One rank has the transport `loopback` whatever it asks for.
SIZES = {"loopback": (1, 2, 3, 4), "emulated": (4,), "nccl": (2, 4, 8), "fabric": (2,)}
# Threads and processes of one node, as few ranks as show what they do.
FAST = {("loopback", 4), ("shared_memory", 3), ("mpi", 2)}
# Each carrier with one number of ranks; with others, the same code runs at night.
EACH_COMMIT = FAST | {("gloo", 2), ("fabric", 2), ("libfabric", 3), ("emulated", 4)}
# Threads are cheap: one rank, which is special, and a number of them that divides little.
ONE_AND_ODD = {("loopback", 1), ("loopback", 3)}
COMMON = [*(scenario.name for scenario in SCENARIOS), "epochs", "law", "resume", "queue"]
COMMON += ["two_loaders", "rate_limit", "pressure", *attempts()]


def groups(
    *implementations: str,
    sizes: tuple[int, ...] = (2, 3, 4),
    each_commit: set[tuple[str, int]] = EACH_COMMIT,
) -> list[object]:
    """Parameters for the fixture `group`; those that are not for each commit are for the night."""
    return [
        pytest.param(
            (name, size), id=f"{name}-{size}", marks=marks(name, size, (name, size) in each_commit)
        )
        for name in implementations or IMPLEMENTATIONS
        for size in SIZES.get(name, sizes)
    ]


def marks(implementation: str, size: int, each_commit: bool) -> list[pytest.MarkDecorator]:
    found = [*MARKS.get(implementation, []), pytest.mark.xdist_group(f"{implementation}-{size}")]
    if implementation == "nccl":
        return [*found, pytest.mark.gpus(size)]
    if (implementation, size) not in FAST:
        found.append(pytest.mark.slow)
    if not each_commit:
        found.append(pytest.mark.nightly)
    return found


class Group:
    """What the ranks of one group wrote down.

    A program that fails ends its ranks: they are started again for the programs behind it.
    """

    def __init__(self, implementation: str, size: int, folder: Path) -> None:
        self.name, self.size = implementation, size
        programs = COMMON + (["toy"] if implementation == "gloo" and size != 3 else [])
        if (implementation, size) == ("gloo", 1):
            programs = ["toy"]  # what the toys of more ranks are compared with
        self.launches: list[Ended] = []
        self._launch_of: dict[str, Ended] = {}
        while programs and len(self.launches) < 6:
            ended = launch(
                IMPLEMENTATIONS[implementation], size, programs, folder / str(len(self.launches))
            )
            self.launches.append(ended)
            done = [program for program in programs if ended.finished(program)]
            tried = programs[: len(done) + 1]
            self._launch_of.update(dict.fromkeys(tried, ended))
            programs = programs[len(tried) :]
        self._launch_of.update(dict.fromkeys(programs, ended))
        self.arrays: Callable[[str], list[Arrays]] = cache(self._arrays)

    def _arrays(self, program: str) -> list[Arrays]:
        """By rank."""
        return self._launch_of[program].arrays(program)
