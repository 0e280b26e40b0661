#!/usr/bin/env python3
"""The built-in model beside what others have published of NCCL: every row, the worst first.

    python benchmarks/emulator/published.py

published.csv has the out-of-place times of nccl-tests in public issues. Rows that are left out say
why; the model is told nothing of the others, but that the ready links' bandwidths of eight H100 and
of their network come from issues, too (`gear.emu.Links.load("hgx-h100").numbers`).
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import gear.emu as emu
from gear.emu.models.spread import LARGE

ROWS = Path(__file__).with_name("published.csv")


@dataclass(frozen=True)
class Row:
    """left_out: why, in words; empty: it counts."""

    issue: str
    operation: str
    gpu: str
    shape: emu.Shape
    setting: str
    bytes: int
    us: float
    left_out: str

    def error(self, links: emu.Links) -> float:
        """What the model says over what was published, less 1."""
        curve = emu.two_level(self.operation, self.shape, links)
        return 1e6 * curve.at(self.bytes).seconds / self.us - 1


def rows() -> list[Row]:
    """All of published.csv."""
    with ROWS.open(newline="") as file:
        return [
            Row(
                one["issue"],
                one["operation"],
                one["gpu"],
                emu.Shape(int(one["per_node"]), int(one["nodes"])),
                one["setting"],
                int(one["bytes"]),
                float(one["us"]),
                one["left_out"],
            )
            for one in csv.DictReader(file)
        ]


def errors(large: bool) -> list[float]:
    """Of the rows that count, from LARGE bytes on or below."""
    links = emu.Links.load("hgx-h100")
    counted = [one for one in rows() if not one.left_out]
    return [one.error(links) for one in counted if (one.bytes >= LARGE) == large]


def within(found: Sequence[float], part: float) -> tuple[float, float]:
    """Between which `part` of them lie, as many outside on each side."""
    cuts = statistics.quantiles(found, n=1000, method="inclusive")
    outside = round(500 * (1 - part))
    return cuts[outside - 1], cuts[-outside]


def _lines(some: Iterable[Row], links: emu.Links) -> None:
    for one in sorted(some, key=lambda row: -abs(row.error(links))):
        where = f"{one.shape.per_node} a node on {one.shape.nodes}"
        told = "  ".join(word for word in (one.setting, one.left_out) if word)
        print(
            f"{one.error(links):+7.1%}  {one.bytes:>11}  {one.us:>9.1f} us  {one.operation:<10}  "
            f"{where:<13}  {one.gpu:<8}  {one.issue:<21}  {told}".rstrip()
        )


def main() -> None:
    links = emu.Links.load("hgx-h100")
    for large, sizes in ((True, "64 MiB and more"), (False, "less than 64 MiB")):
        found = errors(large)
        low, high = within(found, 0.9)
        print(
            f"{sizes}: {len(found)} rows, median of the absolute error "
            f"{statistics.median(map(abs, found)):.0%}, nine of ten between {low:+.0%} and "
            f"{high:+.0%}"
        )
        _lines((r for r in rows() if not r.left_out and (r.bytes >= LARGE) == large), links)
        print()
    print("left out:")
    _lines((one for one in rows() if one.left_out), links)


if __name__ == "__main__":
    main()
