"""What a transport of the core says of ranks, as users read it: with processes and hosts."""

from __future__ import annotations

import pytest

from gear.distributed.channels.carried import of_members
from gear.distributed.member import Member

MEMBERS = [Member(rank, "n", "h", f"host{rank}", 100 + rank, 1) for rank in range(12)]
LOOK = "look for the cause there, or raise timeout_s (GEAR_TIMEOUT_S)"


@pytest.mark.parametrize(
    ("said", "read"),
    [
        (
            "[transport] rank 2 did not take part in allgather within 4 s: see what it does, or "
            "set a longer time-out",
            f"[transport] rank 2 (pid 102 on host2) did not take part within 4 s: {LOOK}",
        ),
        (
            "[transport] ranks 1 and 3 did not take part in exchange within 0.5 s: see what they "
            "do, or set a longer time-out",
            "[transport] rank 1 (pid 101 on host1), rank 3 (pid 103 on host3) did not take part "
            f"within 0.5 s: {LOOK}",
        ),
        (
            "[transport] ranks 0, 1 and 40 more did not take part in the start of the transport "
            "within 300 s: see what they do, or set a longer time-out",
            "[transport] rank 0 (pid 100 on host0), rank 1 (pid 101 on host1) and 40 more did not "
            f"take part within 300 s: {LOOK}",
        ),
        (
            "[transport] rank 11 (pid 111) has ended: rank 0 waits for it in allgather; its own "
            "output says why",
            "[transport] rank 11 (pid 111 on host11) has ended: rank 0 waits for it in allgather; "
            "its own output says why",
        ),
        (
            "[transport] ranks 10 and 11 did not take part in exchange within 2 s: see what they "
            "do, or set a longer time-out",
            "[transport] rank 10 (pid 110 on host10), rank 11 (pid 111 on host11) did not take "
            f"part within 2 s: {LOOK}",
        ),
        (
            "[transport] rank 11 (pid 111 on host11) ended with ValueError: mine",
            "[transport] rank 11 (pid 111 on host11) ended with ValueError: mine",
        ),
        (
            "[transport] rank 3 (pid 103 on host3) ended with ValueError: mine",
            "[transport] rank 3 (pid 103 on host3) ended with ValueError: mine",
        ),
    ],
)
def test_ranks_are_members(said: str, read: str) -> None:
    assert of_members(said, MEMBERS) == read


def test_ranks_that_have_not_met_stay_numbers() -> None:
    assert of_members("[transport] rank 2 has left", []) == "[transport] rank 2 has left"
