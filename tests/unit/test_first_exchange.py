"""Which transport a group takes, given what a first exchange has shown."""

from __future__ import annotations

import pytest

from gear.distributed.channels.first_exchange import Tried, fastest, sources, told

FAILED = Tried("fabric", 0.0, "rank 3: no address")


@pytest.mark.parametrize(
    ("rates", "taken"),
    [
        ({"verbs": 11.2e9, "mpi": 7.9e9, "group": 1.1e9}, "verbs"),
        ({"verbs": 7.9e9, "mpi": 11.2e9, "group": 1.1e9}, "mpi"),
        ({"verbs": 9.1e9, "mpi": 10e9, "group": 9.5e9}, "verbs"),  # within 10 %: by the order
        ({"verbs": 8.9e9, "mpi": 9.1e9, "group": 10e9}, "mpi"),
        ({"verbs": 0.0, "mpi": 1e6, "group": 2e6}, "group"),
    ],
)
def test_the_fastest_is_taken_and_among_equals_the_first(
    rates: dict[str, float], taken: str
) -> None:
    assert fastest([Tried(kind, rate) for kind, rate in rates.items()]).kind == taken


def test_what_was_measured_is_told_with_what_was_left_out() -> None:
    tried = [Tried("verbs", 7.94e9), FAILED, Tried("mpi", 11.16e9), Tried("group", 0.0456e9)]
    assert told(tried, 2, "mpi") == (
        "mpi 11.2 GB/s, verbs 7.9, group 0.046: rows between 2 nodes, in a first exchange; "
        "fabric left out: rank 3: no address"
    )
    assert told([FAILED], 3, "").startswith("none answered: rows between 3 nodes")


def test_who_is_taken_and_was_not_the_fastest_is_told_why() -> None:
    text = told([Tried("mpi", 1.9e9), Tried("group", 2e9)], 2, "mpi")
    assert text.endswith("in a first exchange; mpi, within 10 % of group, is preferred")


def test_each_rank_gets_rows_of_another_node() -> None:
    assert sources([0, 1]) == [1, 0]
    assert sources([0, 0, 1]) == [2, 2, 0]
    assert sources([0, 1, 0, 1, 2, 0]) == [1, 4, 3, 4, 0, 1]
