"""`gear emu replay`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from gear.cli.emu.job import job_of, say


@click.command()
@click.option(
    "-N",
    "--ranks",
    "texts",
    multiple=True,
    required=True,
    metavar="N[,N...]",
    help="Ranks of the group; several: a line for each.",
)
@click.option("--per-node", type=int, metavar="N", help="Ranks a node; default: 8, or all.")
@click.option("--batch", type=int, required=True, metavar="N", help="Items of each rank.")
@click.option("--row-bytes", type=int, required=True, metavar="BYTES", help="Of an item.")
@click.option(
    "--device",
    default="cpu",
    metavar="DEVICE",
    help="Where batches go: cpu (the default), cuda or cuda:INDEX.",
)
@click.option(
    "--locality",
    default="first",
    metavar="first|off",
    help="Whether ranks keep what they draw of their own; default: first.",
)
@click.option("--links", metavar="FILE|NAME", help="Numbers of the links; default: hgx-h100.")
@click.option(
    "--set",
    "numbers",
    multiple=True,
    metavar="NAME=NUMBER",
    help="One number of the links, as nic.gb_per_s=25.",
)
@click.option("--model", metavar="MODEL", help="two_level, PACKAGE.MODULE:FUNCTION or FILE.csv.")
@click.option("--json", "file", metavar="FILE", help="Write all figures here, round by round.")
def replay(
    texts: tuple[str, ...],
    per_node: int | None,
    batch: int,
    row_bytes: int,
    device: str,
    locality: str,
    file: str | None,
    **of_links: Any,
) -> int:
    """Say what a batch of a replay buffer over N ranks takes, of uniform draws.

    What a rank does by itself is measured here, in one process: its draws, for which it looks at
    those of all ranks, and its gather. What it sends is known by formula, and takes what the links
    say. The parts follow each other: what a loader hides behind a training step is in the sum.
    """
    from gear.emu.replay.estimate import estimate, table
    from gear.emu.replay.measure import Alone, check_device, filled
    from gear.emu.replay.rounds import Batch
    from gear.emu.text_file import write_whole
    from gear.emu.transport import curves_of

    sizes = _sizes(texts)
    first = job_of(file=None, ranks=sizes[0], per_node=per_node, real=None, **of_links)
    jobs = [replace(first, ranks=size, per_node=per_node) for size in sizes]
    batches = [Batch(one.shape_of(range(one.ranks)), batch, row_bytes, locality) for one in jobs]
    curves = [
        curves_of(one.loaded_model(), of.shape, one.loaded_links())
        for one, of in zip(jobs, batches, strict=True)
    ]
    check_device(device, [of.shape for of in batches])
    if file is not None and not os.access(Path(file).absolute().parent, os.W_OK):
        raise click.UsageError(f"gear emu replay: --json {file}: its folder cannot be written to")
    with filled(batch, row_bytes, device) as buffer:
        rank = Alone(buffer, batch, device)
        own_s = rank.own_s()
        estimates = []
        for of, curve in zip(batches, curves, strict=True):
            say(f"{of.shape.ranks} ranks: draws")
            draw_s = rank.draw_s(of.shape, locality)
            estimates.append(estimate(of, draw_s, own_s, curve))
    print(table(estimates))
    print(
        f"of {batch} items of {row_bytes} bytes a rank, to {device}, locality {locality}; links"
        f" {first.links}, model {first.model}; messages and bytes are what a rank gives"
    )
    if file is not None:
        said = {
            "batch": batch,
            "row_bytes": row_bytes,
            "device": device,
            "locality": locality,
            "links": first.links,
            "set": dict(first.set),
            "model": first.model,
            "rows": [one.as_json() for one in estimates],
        }
        write_whole(file, json.dumps(said, indent=1) + "\n")
    return 0


def _sizes(texts: Sequence[str]) -> list[int]:
    """Of `64` and `64,512`."""
    found = []
    for text in texts:
        for part in text.split(","):
            if not part.isdigit():
                raise click.UsageError(
                    f"gear emu replay: --ranks {text}: whole numbers are allowed, as 64,512"
                )
            found.append(int(part))
    return found
