"""What runs have left: `gear emu compare` and `gear emu trace`."""

from __future__ import annotations

import click

from gear.cli.emu.job import say


@click.command()
@click.argument("first", type=click.Path())
@click.argument("second", type=click.Path())
@click.option(
    "--require",
    type=click.FloatRange(0, min_open=True),
    metavar="PART",
    help="Exit code 1 if steps or torch's allocator differ by more, as 0.05.",
)
def compare(first: str, second: str, require: float | None) -> int:
    """Compare runs of one program, by what `gear emu run --out` has left in FIRST and SECOND.

    FIRST may be a run of real ranks alone, which no model holds (--real all --model none): then
    this is how true the second is.
    """
    from gear.emu.compare import compare as compared

    ranks = compared(first, second)
    print(f"first {first}, second {second}", *ranks, sep="\n")
    if require is not None and ranks[0].worst > require:
        say(f"rank {ranks[0].rank} differs by {ranks[0].worst:.2%}, more than {require:.2%}")
        return 1
    return 0


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path())
def trace(folder: str) -> int:
    """Print one trace of what `gear emu run --out DIR` has left, for chrome://tracing and Perfetto.

    A real rank is a process of it, with a row for the operations of each group, as the model has
    them, one for what threads waited, and one for steps.
    """
    from gear.emu.trace import trace as whole

    print(whole(folder))
    return 0
