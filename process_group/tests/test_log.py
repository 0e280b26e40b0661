"""What operations took: the files of the ranks, lines on stderr, and the trace made of both."""

from __future__ import annotations

import csv
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import gear_mpi
from gear_mpi import log, trace
from process_group.tests.conftest import Failing

pytestmark = [pytest.mark.xdist_group("process_group")]

COLUMNS = "start_us,duration_us,bytes,operation,dtype,ranks,route,group,call,failed"


def rows(failing: Failing, rank: int) -> list[dict[str, str]]:
    with log.file_of(failing.log, rank).open(newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.gear_mpi
@pytest.mark.slow
def test_operations_are_logged_with_what_they_moved(failing: Failing) -> None:
    of_no_message = {"operation": "recv", "bytes": "12", "call": "", "failed": "1"}
    wanted = {"dtype": "Float", "ranks": "3", "route": "mpi"}
    found = [row for row in rows(failing, 0) if row["operation"] == "recv"]
    assert found[0].items() >= {**of_no_message, **wanted}.items()
    after = [row for row in rows(failing, 0) if row["group"] == found[0]["group"]]
    assert after[-1].items() >= {**wanted, "operation": "all_reduce", "call": "0"}.items()
    assert (after[-1]["bytes"], after[-1]["failed"]) == ("12", "0")
    # The recv waited for its time-out.
    assert float(found[0]["duration_us"]) >= 0.5e6
    now_us = time.time() * 1e6
    assert all(0 < now_us - float(row["start_us"]) < 3600e6 for row in rows(failing, 0))


@pytest.mark.gear_mpi
@pytest.mark.slow
def test_memory_of_the_node_is_a_route(failing: Failing) -> None:
    for rank in range(3):
        shared = [row for row in rows(failing, rank) if row["route"] == "shared"]
        assert {row["operation"] for row in shared} == {"all_reduce"}
        assert "400000" in {row["bytes"] for row in shared}


@pytest.mark.gear_mpi
@pytest.mark.slow
def test_route_of_each_operation_is_logged(failing: Failing) -> None:
    for rank in range(2):  # the third is killed, and with it its last lines
        gloo = [row for row in rows(failing, rank) if row["route"] == "gloo"]
        assert [(row["operation"], row["bytes"]) for row in gloo] == [("all_reduce", "4000")]
        small = [row for row in rows(failing, rank) if row["group"] == gloo[0]["group"]]
        small = [row for row in small if row["bytes"] == "40"]
        assert {row["route"] for row in small} == {"mpi"}
        # Calls are counted over both routes.
        calls = [int(small[0]["call"]), int(gloo[0]["call"]), int(small[1]["call"])]
        assert calls == list(range(calls[0], calls[0] + 3))


@pytest.mark.gear_mpi
@pytest.mark.slow
def test_every_operation_prints_a_line(failing: Failing) -> None:
    call = r"gear_mpi: rank 1: all_reduce \(call \d+ of group \w+, 3 ranks\), "
    assert re.search(call + r"4000 bytes of Float, by gloo, [\d.]+ us", failing.output)
    assert re.search(r"by mpi, failed after [\d.]+ us", failing.output)


@pytest.mark.gear_mpi
@pytest.mark.slow
def test_trace_of_all_ranks(failing: Failing) -> None:
    made = list(trace.events(failing.log))
    assert {event["pid"] for event in made} == {0, 1, 2}
    operations = [event for event in made if event["ph"] == "X"]
    assert len(operations) == sum(len(rows(failing, rank)) for rank in range(3))


def written(folder: Path, *lines: str) -> Path:
    log.file_of(folder, 3).write_text("\n".join((COLUMNS, *lines)) + "\n")
    return folder


def test_operations_that_overlap_stand_in_rows_of_their_own(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        "10.000,5.000,8,barrier,,2,mpi,g,1,0",
        "1.000,10.500,400,all_reduce,Float,2,gloo,g,0,0",
        "16.000,1.000,4,send,Float,2,mpi,g,,1",
    )
    made = list(trace.events(folder))
    names = [event["args"]["name"] for event in made if event["ph"] == "M"]
    assert names == ["rank 3", "group g", "group g, 2"]
    operations = [event for event in made if event["ph"] == "X"]
    assert [(e["name"], e["tid"], e["ts"], e["dur"]) for e in operations] == [
        ("all_reduce", 0, 1.0, 10.5),
        ("barrier", 1, 10.0, 5.0),
        ("send", 0, 16.0, 1.0),
    ]
    assert operations[0]["args"] == {
        "bytes": "400",
        "dtype": "Float",
        "ranks": "2",
        "route": "gloo",
        "call": "0",
        "failed": "0",
    }


def test_trace_is_json_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trace.main([str(written(tmp_path, "1.0,2.0,8,barrier,,2,mpi,g,1,0"))]) == 0
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [event["ph"] for event in made["traceEvents"]] == ["M", "M", "X"]


def test_what_is_no_folder_of_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trace.main([str(tmp_path)]) == 1
    assert "give the folder that GEAR_MPI_LOG named" in capsys.readouterr().err
    assert trace.main([]) == 2
    log.file_of(tmp_path, 0).write_text("a,b\n1,2\n")
    with pytest.raises(gear_mpi.InvalidArgument, match=r"rank-0\.csv is no log of gear_mpi"):
        list(trace.events(tmp_path))


class Module:
    """Stands in for the extension."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, str, bool]] = []

    def begin_log(self, rank: int, file: str, prints: bool) -> None:
        self.begun.append((rank, file, prints))


def test_what_the_environment_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEAR_DEBUG", raising=False)
    monkeypatch.delenv("GEAR_MPI_LOG", raising=False)
    module = Module()
    log.begin(module, 2)
    assert module.begun == []
    monkeypatch.setenv("GEAR_MPI_LOG", str(tmp_path / "a" / "b"))
    log.begin(module, 2)
    monkeypatch.delenv("GEAR_MPI_LOG")
    monkeypatch.setenv("GEAR_DEBUG", "1")
    log.begin(module, 2)
    assert module.begun == [(2, str(tmp_path / "a/b/rank-2.csv"), False), (2, "", True)]
    monkeypatch.setenv("GEAR_DEBUG", "yes")
    with pytest.raises(gear_mpi.InvalidArgument, match="GEAR_DEBUG='yes': 0 or 1"):
        log.begin(module, 2)


def test_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEAR_DEBUG", raising=False)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GEAR_MPI_LOG", str(tmp_path / "file" / "log"))
    with pytest.raises(gear_mpi.InvalidArgument, match="give a folder that can be written"):
        log.begin(Module(), 0)
