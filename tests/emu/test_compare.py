"""`gear emu compare`: runs of one program, and of others, which are refused."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from emu.reports import operation, report

import gear.emu as emu
from gear.cli.app import main
from gear.emu.compare import compare
from gear.errors import CorruptData, InvalidArgument, IoError


def kept(folder: Path, reports: dict[int, emu.Report], ranks: int = 8) -> Path:
    folder.mkdir()
    emu.Job(ranks, real=tuple(reports)).save(folder / "job.toml")
    for rank, one in reports.items():
        (folder / f"rank-{rank}.json").write_text(json.dumps(asdict(one)))
    return folder


def test_common_ranks_are_compared_the_worst_first(tmp_path) -> None:
    first = kept(tmp_path / "a", {0: report(0.1), 3: report(0.2), 4: report(0.3)})
    second = kept(tmp_path / "b", {0: report(0.11), 3: report(0.15), 5: report(0.3)})
    found = compare(first, second)
    assert [one.rank for one in found] == [3, 0]
    assert [one.step for one in found] == pytest.approx([-0.25, 0.1])
    assert [one.memory for one in found] == [None, None]
    assert [one.worst for one in found] == pytest.approx([0.25, 0.1])


def test_what_is_printed(tmp_path, capsys) -> None:
    first = kept(tmp_path / "a", {0: report(0.1, allocator_peak_bytes=100 << 20)})
    second = kept(tmp_path / "b", {0: report(0.12, 20, emulated=7, allocator_peak_bytes=103 << 20)})
    assert main(["emu", "compare", str(first), str(second)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == [
        "rank 0: step +20.00%",
        "  first  0 emulated, 10 steps: median 100.000 ms, half of them 90.000 to 120.000 ms",
        "  second 7 emulated, 20 steps: median 120.000 ms, half of them 108.000 to 144.000 ms",
        "operations of a step: calls, bytes; first | second: modelled ms, waited ms",
        "  all_reduce            2           4096       10.000 | 10.000         4.000 | 4.000",
        "  most of torch's allocator, MiB: 100.000 | 103.000: +3.00%",
        "  most of the host, MiB: 1024.000 | 1024.000",
    ]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"step_s": 0.104}, 0),
        ({"step_s": 0.096}, 0),
        ({"step_s": 0.106}, 1),
        ({"step_s": 0.094}, 1),
        ({"allocator_peak_bytes": 104}, 0),
        ({"allocator_peak_bytes": 94}, 1),
        ({"process_peak_bytes": 1 << 34}, 0),  # processes here are not those of the job
    ],
)
def test_what_is_required(changes, code, tmp_path, capsys) -> None:
    first = kept(tmp_path / "a", {0: report(allocator_peak_bytes=100), 1: report()})
    second = {0: report(**{"allocator_peak_bytes": 100} | changes), 1: report()}
    second_folder = kept(tmp_path / "b", second)
    words = ["emu", "compare", str(first), str(second_folder), "--require", "0.05"]
    assert main(words) == code
    assert ("rank 0 differs by 6.00%, more than 5.00%" in capsys.readouterr().err) == (code == 1)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({0: report(program="other.py")}, "b one of 'other.py': compare runs of one program"),
        ({1: report()}, "a has reports of the real ranks 0 and "),
        ({0: report(steps=1, step_s=None)}, "rank 0 has taken fewer than four steps"),
        (
            {0: report(in_steps=(operation("all_reduce", 10, 40960, 0.1, 0.1),))},
            "2 calls of all_reduce with 4096 bytes and one of",
        ),
        (
            {0: report(in_steps=(operation("all_reduce", 20, 81920, 0.1, 0.1),))},
            "2 with 8192: compare runs of one program with the same arguments",
        ),
        (
            {0: report(in_steps=(*report().in_steps, operation("broadcast", 10, 10, 0.1, 0.1)))},
            "has 0 calls of broadcast with 0 bytes and one of",
        ),
        ({0: report(in_steps=())}, "b 0 with 0: compare runs"),
    ],
)
def test_runs_of_different_programs_are_refused(second, message, tmp_path) -> None:
    first = kept(tmp_path / "a", {0: report()})
    with pytest.raises(InvalidArgument) as error:
        compare(first, kept(tmp_path / "b", second))
    assert message in str(error.value)


def test_jobs_of_two_sizes_are_refused(tmp_path) -> None:
    first, second = (
        kept(tmp_path / "a", {0: report()}),
        kept(tmp_path / "b", {0: report()}, ranks=16),
    )
    with pytest.raises(
        InvalidArgument, match=r"a job of 8 ranks and .* one of 16: compare jobs of"
    ):
        compare(first, second)


def test_what_is_of_no_real_rank_is_left_out(tmp_path) -> None:
    """A report of an earlier run; and links that are not on this machine."""
    first = kept(tmp_path / "a", {0: report(), 3: report(0.5)})
    (first / "job.toml").write_text('ranks = 8\nreal = [0]\nlinks = "elsewhere.json"\n')
    assert [one.rank for one in compare(first, first)] == [0]


def test_folders_of_no_run_are_refused(tmp_path) -> None:
    first = kept(tmp_path / "a", {0: report()})
    with pytest.raises(InvalidArgument, match=r"nothing has no job\.toml: give the folder of a"):
        compare(first, tmp_path / "nothing")
    (first / "rank-0.json").write_text("{}")
    with pytest.raises(CorruptData, match="is no report"):
        compare(first, first)
    (first / "rank-0.json").unlink()
    (first / "rank-0.json").mkdir()
    with pytest.raises(IoError, match="cannot be read"):
        compare(first, first)
