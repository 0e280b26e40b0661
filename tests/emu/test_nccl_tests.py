"""Logs of nccl-tests become measured points; what they do not say is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

import gear.emu as emu
from gear.cli.app import main
from gear.emu.nccl_tests import read_logs
from gear.errors import InvalidArgument, IoError

HEAD = """\
# Collective test starting: {test}_perf
# nThread 1 nGpus 1 minBytes 1024 maxBytes 8192 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
"""
COLUMNS = """\
#
#                                                         out-of-place                     in-place
#       size         count      type   redop    root  time   algbw   busbw #wrong      time   algbw
#        (B)    (elements)                            (us)  (GB/s)  (GB/s)             (us)  (GB/s)
"""
TAIL = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.23\n"


def log(
    rows: list[tuple[int, str, str]], test: str = "all_reduce", hosts: tuple[str, ...] = ("a", "a")
) -> str:
    devices = "".join(
        f"#  Rank {rank:2d} Group  0 Pid  {rank + 9} on   {host} device  {rank} [0x1b] A GPU\n"
        for rank, host in enumerate(hosts)
    )
    lines = "".join(
        f"{size:12d}{size // 4:12d}     float     sum      -1  {out:>8}    0.01    0.01      0"
        f"  {inside:>8}    0.01\n"
        for size, out, inside in rows
    )
    return HEAD.format(test=test) + devices + COLUMNS + lines + TAIL


def kept(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_a_log_is_measured_points(tmp_path) -> None:
    rows = [(0, "5.0", "5.0"), (1024, "10.0", "12.0"), (2048, "20.00", "N/A"), (4096, "30", "34")]
    path = kept(tmp_path, "x.log", log(rows))
    found = read_logs([path])
    assert {(one.operation, one.shape) for one in found} == {("all_reduce", emu.Shape(2))}
    points = [(one.point.bytes, one.point.seconds, one.point.interval) for one in found]
    assert points == [
        (1024, pytest.approx(11e-6), pytest.approx((10e-6, 12e-6))),
        (2048, pytest.approx(20e-6), pytest.approx((20e-6, 20e-6))),
        (4096, pytest.approx(32e-6), pytest.approx((30e-6, 34e-6))),
    ]
    assert found[0].point.basis == "measured"
    assert found[0].point.source == "nccl-tests: x.log"


def test_logs_of_one_test_are_one_curve(tmp_path) -> None:
    one = kept(tmp_path, "1.log", log([(1024, "12", "12"), (2048, "10", "10"), (4096, "30", "30")]))
    other = kept(tmp_path, "2.log", log([(1024, "14", "14"), (2048, "10", "10")]))
    points = [one.point for one in read_logs([one, other])]
    assert [point.seconds for point in points] == pytest.approx([13e-6, 10e-6, 30e-6])
    assert points[0].interval == pytest.approx((12e-6, 14e-6))
    assert points[0].source == "nccl-tests: 1.log, 2.log"


@pytest.mark.parametrize(
    ("test", "operation"),
    [
        ("all_gather", "all_gather"),
        ("reduce_scatter", "reduce_scatter"),
        ("alltoall", "all_to_all"),
        ("sendrecv", "send"),
        ("gather", "gather"),
        ("reduce", "reduce"),
    ],
)
def test_which_operation(test, operation, tmp_path) -> None:
    rows = [(1024, "10", "10")]
    (by_text,) = read_logs([kept(tmp_path, "x.log", log(rows, test))])
    assert by_text.operation == operation
    older = "".join(log(rows, test).splitlines(keepends=True)[1:])
    (by_name,) = read_logs([kept(tmp_path, f"nccl_{test}.7.txt", older)])
    assert by_name.operation == operation


def test_nodes_and_lines_that_mpirun_tags(tmp_path) -> None:
    text = log([(1024, "10", "10")], hosts=("a", "b", "a", "b", "a", "b"))
    tagged = "".join(f"[1,0]<stdout>:{line}\n" for line in text.splitlines())
    (found,) = read_logs([kept(tmp_path, "x.log", tagged)])
    assert found.shape == emu.Shape(3, nodes=2)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.log", "", "does not say which test it is of: give a log of one test"),
        ("x.log", "x_perf all_reduce_perf reduce_perf", "is of all_reduce, reduce: give a log of"),
        ("all_reduce.log", "", "does not say of which ranks it is"),
        ("x.log", log([]), "has no line of a size and its times"),
        ("x.log", log([(0, "1", "1")]), "has no line of a size and its times"),
        ("x.log", log([(8, "N/A", "0")]), "has no line of a size and its times"),
        (
            "x.log",
            log([(8, "1", "1")]).replace("Rank  1", "Rank  0"),
            "has the ranks 0, 0: several runs, or processes that know nothing of each other",
        ),
        (
            "x.log",
            log([(8, "1", "1")], hosts=("a", "a", "b")),
            "has hosts with different numbers of ranks: a 2, b 1",
        ),
        (
            "x.log",
            log([(8, "1", "1")]).replace("Rank  1 Group  0", "Rank  1 Group  1"),
            "is of several groups at once",
        ),
    ],
)
def test_what_a_log_does_not_say(name, text, message, tmp_path) -> None:
    with pytest.raises(InvalidArgument) as error:
        read_logs([kept(tmp_path, name, text)])
    assert message in str(error.value)


def test_a_log_that_is_not_there(tmp_path) -> None:
    with pytest.raises(IoError, match="cannot be read"):
        read_logs([tmp_path / "none.log"])


def test_by_the_command(tmp_path, capsys) -> None:
    """Links of the logs: what they measured is the curve, in the place of what the file had."""
    rows = [(1 << power, f"{10 + power}", f"{10 + power}") for power in range(10, 20)]
    logs = [kept(tmp_path, f"{test}.log", log(rows, test)) for test in ("all_reduce", "all_gather")]
    words = [word for path in logs for word in ("--from", str(path))]
    out = tmp_path / "links.json"
    assert main(["emu", "calibrate", *words, "--out", str(out)]) == 0
    told = capsys.readouterr()
    _, first, second = told.out.splitlines()
    assert first.split()[:7] == ["all_reduce", "2", "a", "node", "on", "1", "node"]
    assert first.split()[-1] == "1.6%"  # 21 us of 2 KiB, between 20 of 1 and 22 of 4
    assert second.split()[0] == "all_gather"
    assert "hgx-h100 with 20 points" in told.err
    links = emu.Links.load(out)
    point = emu.ask(emu.two_level, "all_reduce", emu.Shape(2), links).at(1 << 12)
    assert (point.seconds, point.basis) == (pytest.approx(22e-6), "measured")
    faster = kept(tmp_path, "x.log", log([(1 << 12, "5", "5"), (1 << 13, "6", "6")]))
    again = ["--from", str(faster), "--links", str(out), "--out", str(out)]
    assert main(["emu", "calibrate", *again]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == "-"
    point = emu.ask(emu.two_level, "all_reduce", emu.Shape(2), emu.Links.load(out)).at(1 << 12)
    assert point.seconds == pytest.approx(5e-6)
    assert len(emu.Links.load(out).measured) == 12


def test_a_gap_is_told(tmp_path, capsys) -> None:
    wide = kept(tmp_path, "x.log", log([(1024, "1", "1"), (4096, "2", "2")]))
    assert main(["emu", "calibrate", "--from", str(wide), "--out", str(tmp_path / "o")]) == 2
    assert "nothing between 1024 and 4096 bytes" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
