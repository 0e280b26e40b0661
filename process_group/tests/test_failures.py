"""Who is missing, and who does something else, is said on every rank, within the time-out."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from process_group.tests.conftest import Failing
from process_group.tests.killed import KINDS

pytestmark = [
    pytest.mark.subject("process_group"),
    pytest.mark.gear_mpi,
    pytest.mark.slow,
    pytest.mark.xdist_group("process_group"),
]


@pytest.fixture(scope="module")
def said(failing: Failing) -> list[dict[str, str]]:
    """What each case raised, by rank."""
    return failing.said


@pytest.mark.parametrize(
    ("case", "missing", "call"),
    [
        ("absent", 1, "all_reduce (call 0 of the group)"),
        ("absent_of_small", 1, "all_reduce"),
        ("absent_of_broadcast", 0, "broadcast"),
        ("absent_of_barrier", 2, "monitored_barrier"),
        ("nobody_waits", 1, "all_reduce"),
        ("failed_before", 1, "all_reduce"),
        ("absent_on_node", 1, "all_reduce (call 1 of the group)"),
    ],
)
def test_missing_rank_is_named(
    said: list[dict[str, str]], case: str, missing: int, call: str
) -> None:
    for rank in {0, 1, 2} - {missing}:
        assert f"rank {missing} did not come to {call}" in said[rank][case]
        assert "within 2 s" in said[rank][case]
    assert said[missing][case] == ""


def test_missing_rank_of_a_sub_group_has_its_name_in_the_world_too(
    said: list[dict[str, str]],
) -> None:
    words = "[mpi] rank 1 (2 of the world) did not come to monitored_barrier (call 0 of the group)"
    assert said[1]["absent_of_barrier_in_sub_group"].startswith(f"{words} within 2 s")
    assert said[0]["absent_of_barrier_in_sub_group"] == ""
    assert said[2]["absent_of_barrier_in_sub_group"] == ""


def test_ranks_that_differ_in_a_sub_group_have_their_names_in_the_world_too(
    said: list[dict[str, str]],
) -> None:
    for one in said[1:]:
        words = one["other_call_in_sub_group"]
        assert "rank 0 (1 of the world) called monitored_barrier " in words
        assert "rank 1 (2 of the world) called all_reduce of 3 Float by SUM " in words
    words = "recv of 12 bytes with tag 0: rank 1 (2 of the world) sent 8;"
    assert words in said[1]["other_length_in_sub_group"]


def test_rank_that_was_late_once_is_missed_again(said: list[dict[str, str]]) -> None:
    for rank in (0, 2):
        words = "[mpi] rank 1 did not come to all_reduce (call 1 of the group) within 2 s"
        assert said[rank]["late_once"].startswith(words)
    assert said[1]["late_once"] == ""


def test_rank_far_ahead_is_not_accused_of_another_call(said: list[dict[str, str]]) -> None:
    for rank in (0, 1):
        words = "[mpi] rank 2 did not come to broadcast (call 0 of the group) within 0.5 s"
        assert said[rank]["far_ahead"].startswith(words)
    assert said[2]["far_ahead"] == ""


@pytest.mark.parametrize("kind", list(KINDS))
def test_rank_killed_in_an_operation_is_named(said: list[dict[str, str]], kind: str) -> None:
    for one in said[:2]:
        assert "rank 2 did not come to" in one[f"killed in {kind}"]
        assert "within 2 s" in one[f"killed in {kind}"]


def test_ranks_end_after_that(failing: Failing) -> None:
    assert "ended after" not in failing.output  # by run_ranks


def test_memory_of_the_node_that_cannot_be_had_is_reported(failing: Failing) -> None:
    assert [one["no_memory_on_node"] for one in failing.said] == ["", "", ""]
    (line,) = [line for line in failing.output.splitlines() if "cannot have" in line]
    assert line.startswith("gear_mpi: rank 0 cannot have ")
    assert "share (File too large): all_reduce of GPU tensors goes by messages" in line


def test_gpu_that_fails_is_named_in_words_that_mpi_sends_at_once(
    said: list[dict[str, str]],
) -> None:
    words = said[1]["lost_gpu"]
    assert words.startswith("[mpi] rank 1 failed in all_reduce: the GPU is lost")
    assert len(words) > 2000
    for rank in (0, 2):
        assert said[rank]["lost_gpu"] == words[:1000]


def test_part_that_is_not_begun_leaves_the_others_to_their_end(said: list[dict[str, str]]) -> None:
    assert said[1]["refused_part"].startswith("not begun: [mpi] rank")


OTHER_CALLS = ["other_call", "other_size_of_large", "refused_part"]


@pytest.mark.parametrize("case", OTHER_CALLS)
def test_other_call_is_named(said: list[dict[str, str]], case: str) -> None:
    for one in said:
        assert "make the same calls in the same order" in one[case]


def test_missing_message_leaves_the_group_as_it_is(said: list[dict[str, str]]) -> None:
    words = "rank 1 has not sent rank 0 a message with tag 7 within 0.5 s"
    assert words in said[0]["no_message"]
    assert said[1]["no_message"] == said[2]["no_message"] == ""


def test_message_of_another_length(said: list[dict[str, str]]) -> None:
    assert "recv of 12 bytes with tag 0: rank 1 sent 8;" in said[0]["other_length"]
    longer = "recv of 4000 bytes with tag 0: rank 1 sent 400000;"
    assert longer in said[0]["other_length_of_large"]
    assert said[1]["other_length_of_large"] == ""


def test_receives_take_messages_in_the_order_of_their_calls(said: list[dict[str, str]]) -> None:
    assert [one["in_order"] for one in said] == ["", "", ""]


def test_other_route_is_refused_on_every_rank(said: list[dict[str, str]]) -> None:
    for one in said:
        assert (
            "route differs (rank 0: '', rank 1: 'all_reduce=gloo', rank 2: '')"
            in one["other_route"]
        )


def test_rule_that_is_none_is_refused_on_every_rank(said: list[dict[str, str]]) -> None:
    assert "route='all_reduce=tcp': 'all_reduce=tcp' is no rule" in said[1]["wrong_route"]
    for one in (said[0], said[2]):
        assert "(rank 0: '', rank 1: no rule, rank 2: '')" in one["wrong_route"]
