"""`gear emu calibrate`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gear.cli.emu.job import say

if TYPE_CHECKING:
    from gear.emu import Measured, Point, Shape
    from gear.emu.models.links import Beside, Footprint


@click.command()
@click.option(
    "--from",
    "logs",
    multiple=True,
    metavar="LOG",
    help="Of nccl-tests, in the place of measuring; several.",
)
@click.option(
    "--links",
    default="hgx-h100",
    metavar="FILE|NAME",
    help="What is not measured is as these say; default: hgx-h100.",
)
@click.option(
    "--largest",
    type=click.IntRange(min=1 << 10),
    default=1 << 30,
    metavar="BYTES",
    help="Of a call; default: 1 GiB.",
)
@click.option("--out", required=True, metavar="FILE", help="Links for gear emu run --links.")
def calibrate(logs: tuple[str, ...], links: str, largest: int, out: str) -> int:
    """Measure what operations take among the ranks that a launcher starts this on.

    Six operations of 1 KiB to --largest, three rounds. The table's last column says how far a size
    lies, at most, from what its neighbours predict: so far the curves can be trusted between them.
    On GPUs, what NCCL takes of them, too: blocks, threads and memory of its kernels, memory of a
    group, the host's time for a call, what a matrix product loses beside it, and what two groups
    at once take.
    """
    from dataclasses import replace

    from gear.emu import Links
    from gear.emu.beside import measure_beside
    from gear.emu.calibrate import connected, measure
    from gear.emu.footprints import measure_footprints
    from gear.emu.nccl_tests import read_logs

    known = Links.load(links)
    if not os.access(Path(out).absolute().parent, os.W_OK):
        raise click.UsageError(f"gear emu calibrate: --out {out}: its folder cannot be written to")
    footprints: Sequence[Footprint] = ()
    beside = known.beside
    if logs:
        measured = read_logs(logs)
    else:
        with connected() as shape:
            is_first = os.environ["RANK"] == "0"
            measured = measure(shape, largest, say if is_first else lambda _: None)
            footprints = measure_footprints(largest)
            beside = measure_beside() or beside
        if not is_first:
            return 0
    calibrated = known.with_measured(measured).with_footprints(footprints)
    replace(calibrated, beside=beside).save(out)
    print(_measured(measured))
    if footprints:
        print(_taken(footprints))
    if beside is not None:
        print(_beside(beside))
    say(f"{out}: {links} with {len(measured)} points: give it to gear emu run --links")
    return 0


def _measured(measured: Sequence[Measured]) -> str:
    """A line for each operation and shape: its sizes, and how far neighbours miss a point."""
    from gear.emu.models.curve import left_out

    curves: dict[tuple[str, Shape], list[Point]] = {}
    for one in measured:
        curves.setdefault((one.operation, one.shape), []).append(one.point)
    lines = [
        "operation       ranks               bytes                       GB/s of the last  missed"
    ]
    for (operation, shape), points in curves.items():
        missed = left_out(points)
        last = points[-1]
        lines.append(
            f"{operation:<15} {shape!s:<19} {points[0].bytes} to {last.bytes:<20}"
            f"{last.bytes / last.seconds / 1e9:16.3f}"
            f"  {'-' if missed is None else f'{missed:.1%}'}"
        )
    return "\n".join(lines)


def _beside(found: Beside) -> str:
    return (
        f"NCCL holds {found.group_bytes / 2**20:.0f} MiB of a GPU for a group, and the host takes"
        f" {found.host_us:.1f} us for a call; a matrix product loses {found.product_lost:.0%}"
        f" beside all_gathers; all_reduces of two groups at once take {found.two_groups:.2f} times"
        " as long"
    )


def _taken(footprints: Sequence[Footprint]) -> str:
    """A line for each operation: what its kernel takes of a GPU, from few bytes to many."""
    rows: dict[str, list[Footprint]] = {}
    for one in footprints:
        rows.setdefault(one.operation, []).append(one)
    lines = ["operation       blocks x threads (KiB of a block) from so many bytes on"]
    for operation, found in rows.items():
        said = (
            f"{one.blocks} x {one.threads} ({one.shared / 1024:.0f}) from {one.bytes}"
            for one in found
        )
        lines.append(f"{operation:<15} {', '.join(said)}")
    return "\n".join(lines)
