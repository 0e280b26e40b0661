"""Rules that say which operations go by gloo."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import gear_mpi
from gear_mpi.routing import NO_LIMIT, OPERATIONS, check_route, default_route, parse, text_of
from gear_mpi.sizes import bytes_of, bytes_text

pytestmark = [pytest.mark.xdist_group("process_group")]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", (0, 0)),
        ("all_reduce=mpi", (0, 0)),
        ("all_reduce=gloo", (0, NO_LIMIT)),
        ("all_reduce>1M=gloo", ((1 << 20) + 1, NO_LIMIT)),
        ("all_reduce > 1m = gloo , all_reduce = mpi", ((1 << 20) + 1, NO_LIMIT)),
        ("all_reduce=gloo,all_reduce>100=mpi", (0, 101)),
        ("all_reduce=gloo,all_reduce>100=gloo", (0, NO_LIMIT)),
        ("all_reduce>0=gloo", (1, NO_LIMIT)),
    ],
)
def test_ranges_of_rules(text: str, wanted: tuple[int, int]) -> None:
    found = parse(text)
    assert found["all_reduce"] == wanted
    assert list(found) == list(OPERATIONS)
    assert all(found[one] == (0, 0) for one in OPERATIONS if one != "all_reduce")
    assert parse(text_of(found)) == found


def test_rules_are_told_shortly() -> None:
    text = "barrier=gloo,all_reduce>1024=gloo,broadcast=gloo,broadcast>4M=mpi,reduce=mpi"
    told = "broadcast=gloo,broadcast>4M=mpi,all_reduce>1K=gloo,barrier=gloo"
    assert text_of(parse(text)) == told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("all_reduce", "'all_reduce' is no rule; OPERATION=ROUTE and OPERATION>BYTES=ROUTE"),
        ("send=gloo", "'send=gloo' is no rule; .* all_to_all, barrier by mpi or gloo"),
        ("all_reduce=ucc", "'all_reduce=ucc' is no rule"),
        ("all_reduce<1M=gloo", "is no rule"),
        ("all_reduce>1X=gloo", "'1X' is no number of bytes"),
        ("all_to_all>1M=gloo", "route all_to_all as a whole"),
        ("all_reduce=gloo,all_reduce=mpi", "is the second such rule for all_reduce"),
    ],
)
def test_what_is_no_rule(text: str, words: str) -> None:
    with pytest.raises(gear_mpi.InvalidArgument, match=words):
        parse(text)


def test_route_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEAR_MPI_ROUTE", raising=False)
    assert default_route() == ""
    monkeypatch.setenv("GEAR_MPI_ROUTE", "barrier=gloo, all_to_all=mpi")
    assert default_route() == "barrier=gloo"
    monkeypatch.setenv("GEAR_MPI_ROUTE", "barrier")
    with pytest.raises(gear_mpi.InvalidArgument, match="GEAR_MPI_ROUTE='barrier'"):
        default_route()


def test_other_routes_on_other_ranks() -> None:
    check_route(["a", "a"])
    with pytest.raises(gear_mpi.InvalidArgument, match="rank 0: 'a', rank 1: 'b'"):
        check_route(["a", "b"])


@pytest.mark.parametrize("number", [0, 1, 1000, 1 << 10, 3 << 20, 1 << 30, (1 << 20) + 1])
def test_numbers_of_bytes_as_text(number: int) -> None:
    assert bytes_of(bytes_text(number)) == number
