"""Curves as CSV: what a measurement, a simulator or a spreadsheet can write."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path

from gear.emu.models.curve import Curve, Point, check_operation
from gear.emu.models.shape import Shape
from gear.errors import CorruptData, InvalidArgument, IoError

COLUMNS = ("operation", "ranks", "nodes", "bytes", "us", "low", "high", "basis", "source")
NEEDED = COLUMNS[:5]

Curves = Mapping[tuple[str, Shape], Curve]


def read_curves(path: str | os.PathLike[str]) -> Curves:
    """The curves of a file, by operation and shape.

    The first line names the columns: operation, ranks, nodes, bytes and us are needed; low and high
    (us), basis and source may be left out. The lines of a curve may stand in any order.

    Raises:
        CorruptData: names the line, and what is wrong with it: a column or a number that is not
            there, an operation that does not exist, ranks that nodes do not divide; or the curve
            whose sizes have a gap, or whose times fall.
        IoError: where the file cannot be read.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return _read(csv.DictReader(file), os.fspath(path))
    except OSError as error:
        raise IoError(error.errno, f"[emu] the curves {path} cannot be read: {error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise CorruptData(f"[emu] the curves {path} are no text: {error}") from None


def _read(lines: csv.DictReader[str], path: str) -> Curves:
    columns = lines.fieldnames or []
    wrong = [name for name in NEEDED if name not in columns]
    wrong += [name for name in columns if name not in COLUMNS]
    if wrong:
        raise CorruptData(
            f"[emu] the curves {path} have the columns {', '.join(columns) or '(none)'}:"
            f" {', '.join(NEEDED)} are needed, {', '.join(COLUMNS[5:])} are allowed"
        )
    found: dict[tuple[str, Shape], list[Point]] = {}
    for line in lines:
        try:
            operation, shape, point = _read_line(line)
        except (ValueError, TypeError) as error:  # InvalidArgument is one
            raise CorruptData(
                f"[emu] line {lines.line_num} of the curves {path}: {error}"
            ) from None
        found.setdefault((operation, shape), []).append(point)
    curves = {}
    for (operation, shape), points in found.items():
        try:
            curves[operation, shape] = Curve(tuple(sorted(points, key=lambda one: one.bytes)))
        except InvalidArgument as error:
            raise CorruptData(
                f"[emu] {operation}, {shape}, in the curves {path}: {error}"
            ) from None
    return curves


def _read_line(line: dict[str, str]) -> tuple[str, Shape, Point]:
    operation = check_operation(line["operation"])
    ranks, nodes = int(line["ranks"]), int(line["nodes"])
    if nodes < 1 or ranks % nodes:
        raise InvalidArgument(
            f"{ranks} ranks on {nodes} nodes: as many ranks on each node are allowed"
        )
    us = {name: line.get(name) for name in ("us", "low", "high")}
    seconds = {name: float(value) * 1e-6 for name, value in us.items() if value}
    point = Point(
        int(line["bytes"]),
        seconds["us"] if "us" in seconds else float(line["us"]),
        low=seconds.get("low"),
        high=seconds.get("high"),
        basis=line.get("basis") or "given",
        source=line.get("source") or "",
    )
    return operation, Shape(ranks // nodes, nodes), point


def write_curves(path: str | os.PathLike[str], curves: Curves) -> None:
    """A file that read_curves() reads, whole or not at all.

    Raises:
        IoError: where it cannot be written.
    """
    whole = Path(f"{os.fspath(path)}.saving")
    try:
        with open(whole, "w", newline="", encoding="utf-8") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow(COLUMNS)
            for (operation, shape), curve in curves.items():
                for point in curve.points:
                    us = [repr(one * 1e6) for one in (point.seconds, *point.interval)]
                    place = [operation, shape.ranks, shape.nodes, point.bytes]
                    out.writerow([*place, *us, point.basis, point.source])
        whole.replace(path)
    except OSError as error:
        raise IoError(error.errno, f"[emu] {path} cannot be written: {error}") from None
