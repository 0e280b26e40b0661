"""MPI carries messages between all ranks of mpirun, or those of a communicator that is known."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import gear
from gear.distributed.channels.transports import choose_transport
from gear.distributed.member import Member
from gear.distributed.places import Places


class Channel:
    def __init__(self, kind: str, rank: int, size: int) -> None:
        self.kind, self.rank, self.size, self.timeout_s = kind, rank, size, 5.0

    def exchange(self, value: Any) -> list[Any]:
        return [value] * self.size


@pytest.fixture(autouse=True)
def built_with_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    build = {**gear._core.build_info(), "mpi": "Open MPI v4"}
    monkeypatch.setattr(gear._core, "build_info", lambda: build)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    for name in ("OMPI_COMM_WORLD", "PMI", "MV2_COMM_WORLD"):
        monkeypatch.delenv(f"{name}_RANK", raising=False)
        monkeypatch.delenv(f"{name}_SIZE", raising=False)


def choice(kind: str, rank: int, size: int) -> str:
    places = Places(rank, [Member.here(r) for r in range(size)])
    return choose_transport(Channel(kind, rank, size), places, "mpirun", "mpi").name  # type: ignore[arg-type]


@pytest.mark.parametrize("names", ["OMPI_COMM_WORLD", "PMI", "MV2_COMM_WORLD"])
@pytest.mark.parametrize(
    ("in_mpi", "in_group"), [((2, 4), (0, 2)), ((0, 4), (0, 2)), ((1, 2), (0, 2))]
)
def test_a_part_of_the_world_or_one_in_another_order_has_no_mpi(
    monkeypatch: pytest.MonkeyPatch,
    names: str,
    in_mpi: tuple[int, int],
    in_group: tuple[int, int],
) -> None:
    """As `Group.from_torch` of some ranks under mpirun, whose communicator nobody knows."""
    monkeypatch.setenv(f"{names}_RANK", str(in_mpi[0]))
    monkeypatch.setenv(f"{names}_SIZE", str(in_mpi[1]))
    with pytest.raises(gear.InvalidArgument, match="ranks were started by mpirun and connected by"):
        choice("shared_memory", *in_group)


def test_a_starter_that_tells_no_size_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMIX_RANK", "1")
    with pytest.raises(
        gear.InvalidArgument, match="of MPI that does not tell each rank's place and size, and"
    ):
        choice("gloo", 1, 2)


def test_all_ranks_of_mpirun_have_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert choice("shared_memory", 1, 2) == "mpi"


def test_ranks_that_mpi_has_connected_have_it_whichever_they_are() -> None:
    assert choice("mpi", 0, 2) == "mpi"
