"""Ranks that meet the wrong ones, make other calls, are interrupted, stopped or end: words for all.

Time-outs are those of a group that would wait a minute; a test that took so long would fail.
"""

from __future__ import annotations

import itertools
import os
import queue
import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gear
from distributed.forked import Run, plain, run

pytestmark = pytest.mark.subject("library")

__all__ = ["run"]  # a fixture
pytest.importorskip("torch")
CARRIED = [
    "group",
    "shared_memory",
    pytest.param(
        "libfabric",
        marks=pytest.mark.skipif(
            not gear._core.build_info()["fabric"], reason="GEAR was built without libfabric"
        ),
    ),
]
WHO = r"\(pid \d+ on \S+\)"


# ---- who meets ----


def test_a_rank_of_another_run_is_not_taken_in_without_a_word(run: Run) -> None:
    """Run B comes between the ranks of A to the same port: nobody goes on in a mixed group."""
    a, b = plain(2, RUN="A", TALK="6"), plain(2, RUN="B", TALK="6")
    port = a[0]["MASTER_PORT"]
    places = [
        a[0] | {"STAY": "3"},
        a[1] | {"DELAY": "0.8"},
        *(one | {"DELAY": "0.3"} for one in b),
    ]
    results = run("meet", [place | {"MASTER_PORT": port} for place in places])
    for result in results:
        assert result["kind"] in ("InvalidArgument", "TransportError"), results
    assert "two runs meet at one address" in results[0]["error"]
    for rank in (1, 2):  # whoever comes for a place that is taken is told by whom
        assert re.search(
            rf"came to 127\.0\.0\.1:{port} .*, where rank \d {WHO} has that place: the address "
            "belongs to another run",
            results[rank]["error"],
        )


def test_a_run_that_is_complete_goes_on_beside_another_at_its_port(run: Run) -> None:
    a, b = plain(2, RUN="A", TALK="2"), plain(2, RUN="B", DELAY="0.8")
    port = a[0]["MASTER_PORT"]
    results = run("meet", [*a, *(one | {"MASTER_PORT": port} for one in b)])
    assert [result["runs"] for result in results] == [["A", "A"], ["A", "A"], [], []]
    assert [result["kind"] for result in results[:2]] == ["nothing"] * 2
    for result in results[2:]:
        assert result["kind"] == "InvalidArgument"
        assert "the address belongs to another run" in result["error"]


def test_runs_with_names_are_told_apart_for_certain(run: Run) -> None:
    """A waits for its own rank 1, and takes in no other."""
    a, b = plain(2, GEAR_RUN_ID="a"), plain(2, GEAR_RUN_ID="b")
    port = a[0]["MASTER_PORT"]
    places = [a[0], a[1] | {"DELAY": "0.8"}, *(one | {"DELAY": "0.2"} for one in b)]
    results = run("meet", [place | {"MASTER_PORT": port} for place in places])
    assert [result["kind"] for result in results] == ["nothing"] * 2 + ["InvalidArgument"] * 2
    assert "belongs to the run GEAR_RUN_ID=a, rank 0 is rank 0 (pid " in results[3]["error"]


def test_runs_that_differ_in_nothing_are_told_apart_by_who_started_them(run: Run) -> None:
    a, b = plain(2, PARENT="1001", TALK="6"), plain(2, PARENT="1002", TALK="6")
    port = a[0]["MASTER_PORT"]
    places = [
        a[0] | {"STAY": "1"},
        a[1] | {"DELAY": "0.4"},
        *(one | {"DELAY": "0.1"} for one in b),
    ]
    results = run("meet", [place | {"MASTER_PORT": port} for place in places])
    assert "two runs meet at one address" in results[0]["error"]
    assert [result["kind"] for result in results[1:3]] == ["InvalidArgument"] * 2, results
    assert results[3]["kind"] == "TransportError", results


def test_a_port_of_something_that_never_answers(run: Run) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        place = plain(2, GEAR_TIMEOUT_S="1.5")[1]
        place["MASTER_PORT"] = str(stranger.getsockname()[1])
        (result,) = run("meet", [place])
    assert result["kind"] == "TransportError"
    assert "within 1.5 s: something listens there and does not answer" in result["error"]


def test_an_address_of_no_host(run: Run) -> None:
    places = plain(2, GEAR_TIMEOUT_S="1.5", MASTER_ADDR="no.such.host.invalid")
    for result in run("meet", places):
        assert result["kind"] == "TransportError"
        assert "no.such.host.invalid" in result["error"]
        assert "no host of that name is known" in result["error"]


def test_waiting_for_a_late_rank_is_silent(run: Run) -> None:
    for result in run("late_start", plain(2)):
        assert result["size"] == 2
        assert "c10d" not in result["output"]


def test_arguments_of_the_group_are_compared(run: Run) -> None:
    places = plain(2)
    for place, seconds in zip(places, ("30", "40"), strict=True):
        place["GEAR_TIMEOUT_S"] = seconds
    for result in run("meet", places):
        assert result["error"] == (
            "[group] Group: timeout_s is 30.0 on rank 0, 40.0 on rank 1: give the same on all ranks"
        )


@pytest.mark.parametrize("carried", CARRIED)
@pytest.mark.parametrize(("who", "when"), [(2, "before"), (2, "while"), (0, "before")])
def test_a_rank_that_is_killed_while_ranks_connect_is_named(
    run: Run, carried: str, who: int, when: str
) -> None:
    places = plain(3, WHO=str(who), WHEN=when, PATIENT_S="60", CARRY_BY=carried)
    results = run("dies_connecting", places, killed=[who])
    # Who rank 0 is stood in the store, which went with it.
    named = f"rank {who} {WHO}" if who else f"rank 0( {WHO})?"
    for result in results[:who] + results[who + 1 :]:
        assert re.match(rf"\[transport\] {named} has ended: ", result["error"]), result


@pytest.mark.parametrize("who", [0, 1])
def test_a_rank_that_is_killed_before_others_map_its_memory_leaves_none_behind(
    run: Run, who: int
) -> None:
    prefix = f"sharing{os.getpid()}"
    places = plain(3, WHO=str(who), GEAR_SHM_PREFIX=prefix)
    results = run("dies_sharing", places, killed=[who])
    for result in results[:who] + results[who + 1 :]:
        assert re.match(rf"\[transport\] rank {who} \(pid \d+.*\) has ended: ", result["error"])
    assert not list(Path("/dev/shm").glob(f"{prefix}*"))


def test_a_rank_of_another_host_that_does_not_connect_is_named(run: Run) -> None:
    """Nobody can look at its process: those that are there call the roll."""
    places = plain(3, WHO="2", WHEN="before", PATIENT_S="2", CARRY_BY="group")
    for rank, place in enumerate(places):
        place["ON_HOST"] = f"host {rank}"
    for result in run("dies_connecting", places, killed=[2])[:2]:
        assert re.match(
            rf"\[transport\] rank 2 {WHO} did not take part within 2 s: ", result["error"]
        ), result


@pytest.mark.parametrize("who", [0, 1])
def test_who_ended_because_of_another_is_not_taken_for_the_cause(
    run: Run, tmp_path: Path, who: int
) -> None:
    """Also where a rank finds both gone, and with rank 0 the store in which it stood."""
    results = run("learns_late", plain(3, WHO=str(who), FOLDER=str(tmp_path)), killed=[who])
    for result in results[:who] + results[who + 1 :]:
        assert re.match(rf"\[transport\] rank {who} {WHO} has ended: ", result["error"]), result


# ---- calls that do not go together ----


def test_ranks_in_other_calls_are_told_which(run: Run) -> None:
    first, second = run("other_calls", plain(2))
    assert first["kind"] == second["kind"] == "TransportError"
    assert first["error"] == second["error"]
    assert re.search(
        rf"rank 0 {WHO} is in barrier \(call \d\) and rank 1 {WHO} is in exchange", first["error"]
    )


@pytest.mark.parametrize("length", [10, 5000])
def test_other_lengths_are_told_apart_before_a_byte_is_taken(run: Run, length: int) -> None:
    for result in run("other_lengths", plain(2, LENGTH=str(length))):
        assert result["kind"] == "TransportError"
        assert re.search(r"allgather .* gives \d+ bytes and .* expects \d+", result["error"])


@pytest.mark.parametrize("who", [0, 1])
def test_a_rank_that_hangs_in_another_library_is_named(run: Run, tmp_path: Path, who: int) -> None:
    """Rank 0, too, whose store is silent then, so that no roll can be called."""
    results = run("hangs", plain(3, WHO=str(who), FOLDER=str(tmp_path)))
    for result in results[:who] + results[who + 1 :]:
        assert re.match(
            rf"\[transport\] rank {who} {WHO} did not take part within 1 s: look for",
            result["error"],
        ), result
    if who != 0:  # to rank 0 nobody could tell it
        late = rf"\[transport\] rank {who} {WHO} came later than 1 s and the others went on"
        assert re.match(late, results[who]["error"]), results[who]


# ---- what one rank has to do alone ----


def test_ranks_do_not_wait_for_memory_that_rank_0_cannot_make(run: Run) -> None:
    first, second = run("no_room", plain(2))
    assert first["kind"] == second["kind"] != "nothing"
    assert second["error"] == f"on rank 0: {first['error']}"


def test_the_end_of_one_channel_leaves_the_others(run: Run) -> None:
    for result in run("closed_channel", plain(2)):
        assert result["said"] == [0, 1]


# ---- signals and exceptions ----


CALLS = ("next", "barrier", "exchange", "save", "buffer", "loader")
FAST = {("next", "shared_memory"), ("exchange", "group"), ("buffer", "group")}


@pytest.mark.parametrize(
    ("call", "carried"),
    [
        pytest.param(*pair, marks=[] if pair in FAST else [pytest.mark.slow])
        for pair in itertools.product(CALLS, ("shared_memory", "group"))
    ],
)
def test_ctrl_c_ends_every_call_and_the_others_hear_of_it(
    run: Run, tmp_path: Path, call: str, carried: str
) -> None:
    first, second = run("interrupted", plain(2, CALL=call, CARRY_BY=carried, FOLDER=str(tmp_path)))
    assert first["kind"] == "KeyboardInterrupt", first
    assert second["kind"] == "TransportError", second
    assert re.search(r"rank 0 \(pid \d+.*\) (was interrupted in|has ended)", second["error"])


def test_ctrl_c_in_a_batch_is_heard_in_other_calls(run: Run) -> None:
    first, second = run("interrupted_elsewhere", plain(2))
    assert first["kind"] == "KeyboardInterrupt"
    assert second["kind"] == "TransportError", second
    assert re.search(r"rank 0 \(pid \d+.*\) was interrupted in", second["error"])


def test_ctrl_c_ends_the_closing_of_a_loader(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    first, second = run("interrupted_close", plain(2, FIFO=str(tmp_path / "fifo")))
    assert first["kind"] == "KeyboardInterrupt"
    assert re.search(rf"rank 0 {WHO} was interrupted in Loader.close", second["error"]), second


def test_ctrl_c_ends_the_connecting_of_training_ranks(run: Run, tmp_path: Path) -> None:
    first, second = run("joins", plain(2, FOLDER=str(tmp_path)))
    assert first["kind"] == "KeyboardInterrupt"
    assert second["kind"] == "TransportError", second
    assert re.search(rf"rank 0 {WHO} was interrupted in gear train", second["error"]), second


def test_ctrl_c_in_the_closing_of_training_ranks_is_told(run: Run) -> None:
    """And it is as any other error: the process ends before gloo's threads see Python end."""
    first, second = run("parts", plain(2))
    assert first["kind"] == "KeyboardInterrupt"
    assert first["leaves"]
    assert second["kind"] == "TransportError", second
    assert re.search(rf"rank 0 {WHO} was interrupted in", second["error"]), second


def test_an_interpreter_may_end_before_the_others_have_heard(run: Run) -> None:
    """It waits for that, and then no thread of it is in the middle of a question."""
    assert run("ends_unheard", plain(2))[0]["kind"] == "KeyboardInterrupt"


def test_an_interpreter_may_end_before_its_loaders(run: Run) -> None:
    for result in run("exits", plain(2)):
        assert result["size"] == 2


@pytest.mark.parametrize("who", [0, 1])
def test_ctrl_c_ends_the_wait_for_a_rank_that_does_not_come(run: Run, who: int) -> None:
    """Those that wait for it, too, hear of it: also of rank 0, with whom the store goes."""
    results = run("waits_for_a_rank", plain(3, WHO=str(who))[:2])
    assert results[who]["kind"] == "KeyboardInterrupt"
    other = results[1 - who]
    assert other["kind"] == "TransportError"
    assert f"rank {who} was interrupted in Group: start the run again" in other["error"]


@pytest.mark.parametrize(
    ("carried", "who"), [("shared_memory", 1), ("group", 1), ("shared_memory", 0), ("group", 0)]
)
def test_an_exception_of_one_rank_is_told_to_the_others(run: Run, carried: str, who: int) -> None:
    """Of rank 0, too, with whose process the store goes in which the words are."""
    other = run("exception", plain(2, CARRY_BY=carried, WHO=str(who)))[1 - who]
    assert other["kind"] == "TransportError"
    assert re.search(
        rf"rank {who} {WHO} ended with ValueError: mine \(group_faults.py, line \d+\)",
        other["error"],
    )


@pytest.mark.parametrize(
    ("carried", "who"), [("shared_memory", 1), ("group", 1), ("shared_memory", 0), ("group", 0)]
)
def test_an_error_of_one_rank_behind_the_agreement_is_told(
    run: Run, carried: str, who: int
) -> None:
    """All had agreed to draw the batch, so the others wait for it."""
    results = run("no_memory_behind_the_agreement", plain(2, CARRY_BY=carried, WHO=str(who)))
    assert results[who]["kind"] == "MemoryError", results
    other = results[1 - who]
    assert other["kind"] == "TransportError"
    assert re.search(rf"rank {who} {WHO} failed in next with MemoryError: ", other["error"])


def test_a_writer_does_not_wait_for_a_stopped_reader_for_ever(run: Run) -> None:
    first, second = run("stopped_reader", plain(2))
    assert first["kind"] == "TransportError"
    assert "rank 1" in first["error"]
    assert second["kind"] == "TransportError"


def test_rows_of_a_stopped_rank_are_pulled_and_those_of_one_that_evicts(
    run: Run, tmp_path: Path
) -> None:
    puller, owner = run("pulls", plain(2, FOLDER=str(tmp_path)))
    assert puller["state"] == "T"
    assert (puller["rows"], puller["wrong"]) == (20_000, 0)
    steps = 2 * 40 * 37
    assert steps - 20 < puller["steps"] <= steps  # 3.4 of them are not drawn in 20,000 draws
    assert puller["chance"] == pytest.approx(1 / steps)
    assert abs(puller["from rank 1"] - 10_000) < 400  # 5.6 sigma
    stats = puller["stats"]
    assert (stats["repeated"], stats["stale"], stats["message_bytes"]) == (0, 0, 0)
    assert stats["local_bytes"] + stats["same_node_bytes"] == stats["bytes"]
    assert puller["wrong while evicted"] == 0
    assert owner["written"] >= 100


# ---- forks and threads ----


def test_a_fork_of_a_rank_is_no_rank(run: Run) -> None:
    for result in run("fork", plain(2)):
        *changes, exchange = result["said"]
        assert exchange["error"].startswith("[group] this group was made before this process was")
        for said in changes:
            assert said["kind"] == "InvalidArgument", said
            assert re.match(r"\[buffer\] \w+: this buffer was made by process", said["error"])
        assert result["drawn"] == [0, 1]
        assert result["parent"] == [0, 1]


def test_two_threads_at_one_group_are_refused() -> None:
    first, second = gear.Group.loopback(2, timeout_s=60)
    told: list[Any] = []
    waiting = threading.Thread(target=lambda: told.append(first.exchange("first")))
    waiting.start()
    while not first._open()._doing:
        time.sleep(0.001)
    with pytest.raises(gear.InvalidArgument, match=r"Group.barrier while another thread's Group.e"):
        first.barrier()
    assert second.exchange("second") == ["first", "second"]
    waiting.join()
    assert told == [["first", "second"]]


def test_two_threads_that_draw_from_one_buffer_are_refused() -> None:
    groups = gear.Group.loopback(2, timeout_s=60)
    loaders: dict[int, list[gear.Loader]] = {}

    def make(rank: int) -> None:
        schema = gear.Schema([gear.Column("x")])
        buffer = gear.ReplayBuffer(schema, 64, group=groups[rank])
        with buffer.writer() as writer:
            writer.extend(x=np.zeros(20, np.float32))
        loaders[rank] = [buffer.loader(4) for _ in range(2)]

    on_both(make)
    refused: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()

    def draw(number: int) -> None:
        try:
            next(loaders[0][number])
        except gear.InvalidArgument as error:
            refused.put((number, str(error)))

    threads = [threading.Thread(target=draw, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    number, error = refused.get(timeout=50)
    assert "another thread draws from this buffer" in error
    next(loaders[1][1 - number])  # what the other thread waits for
    for thread in threads:
        thread.join()
    on_both(lambda rank: [loader.close() for loader in loaders[rank]])


def on_both(part: Callable[[int], Any]) -> None:
    threads = [threading.Thread(target=part, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
