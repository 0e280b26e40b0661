"""Curves as CSV: there and back, and files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from gear.emu import Curve, Links, Point, Shape, read_curves, two_level, write_curves
from gear.errors import CorruptData, IoError

HEAD = "operation,ranks,nodes,bytes,us\n"


def test_there_and_back(tmp_path: Path) -> None:
    links = Links.load("hgx-h100")
    shapes = (Shape(8), Shape(8, 64), Shape(1, 2))
    curves = {
        (operation, shape): two_level(operation, shape, links)
        for operation in ("all_reduce", "send")
        for shape in shapes
    }
    curves["barrier", Shape(2)] = Curve((Point(0, 1e-6, 5e-7, 2e-6, "measured", "two, threes"),))
    write_curves(tmp_path / "curves.csv", curves)
    back = read_curves(tmp_path / "curves.csv")
    assert back.keys() == curves.keys()
    for key, curve in curves.items():
        for one, other in zip(curve.points, back[key].points, strict=True):
            assert (one.bytes, one.basis, one.source) == (other.bytes, other.basis, other.source)
            assert other.seconds == pytest.approx(one.seconds, rel=1e-12)
            assert other.interval == pytest.approx(one.interval, rel=1e-12)


def test_five_columns_are_enough_and_lines_stand_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "site.csv"
    path.write_text(HEAD + "all_reduce,16,2,2048,30\nall_reduce,16,2,1024,20\n")
    (curve,) = read_curves(path).values()
    assert [one.seconds for one in curve.points] == pytest.approx([20e-6, 30e-6])
    assert {one.basis for one in curve.points} == {"given"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"have the columns \(none\): operation, ranks, nodes, bytes, us are needed"),
        ("operation,ranks,nodes,bytes\n", "us are needed"),
        (HEAD.replace("us", "us,colour"), "low, high, basis, source are allowed"),
        (HEAD + "all_reduce,16,2,1024,30\nall_sum,16,2,1024,30\n", "line 3 .*operation 'all_sum'"),
        (HEAD + "all_reduce,16,3,1024,30\n", "line 2 .*16 ranks on 3 nodes"),
        (HEAD + "all_reduce,16,0,1024,30\n", "line 2 .*16 ranks on 0 nodes"),
        (HEAD + "all_reduce,16,2,1 KiB,30\n", "line 2 .*1 KiB"),
        (HEAD + "all_reduce,16,2,1024,\n", "line 2 "),
        (HEAD + "all_reduce,16,2,1024,nan\n", "line 2 .*finite seconds"),
        (HEAD + "all_reduce,16,2\n", "line 2 "),
        (HEAD + "send,2,2,1,1\nsend,2,2,4,2\n", "send, 1 a node on 2 nodes.*nothing between 1 and"),
        (HEAD + "send,2,2,1,2\nsend,2,2,2,1\n", "send, .*more bytes cannot take less"),
    ],
    ids=[
        *("empty", "column missing", "column unknown", "operation", "uneven", "no node"),
        *("no number", "no time", "nan", "short line", "gap", "falls"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "site.csv"
    path.write_text(text)
    with pytest.raises(CorruptData, match=words):
        read_curves(path)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "site.csv"
    path.write_bytes(HEAD.encode() + b"\xff\xfe\x00")
    with pytest.raises(CorruptData, match=r"site\.csv are no text"):
        read_curves(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(IoError, match="cannot be read"):
        read_curves(tmp_path / "none.csv")
    with pytest.raises(IoError, match="cannot be written"):
        write_curves(tmp_path / "none" / "curves.csv", {})
