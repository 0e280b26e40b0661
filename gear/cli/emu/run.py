"""`gear emu run`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from gear.cli.emu.job import PROGRAM, described, job_of, of_job, say

if TYPE_CHECKING:
    from gear.emu import Job


@click.command(context_settings=PROGRAM)
@of_job
@click.option("--out", metavar="DIR", help="Keep the job file and a report of each real rank.")
@click.option(
    "--export", is_flag=True, help="Print the variables for a batch script, and run nothing."
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(command: tuple[str, ...], out: str | None, export: bool, **given: Any) -> int:
    """Run COMMAND, a program that ends in Python, once for each real rank.

    No edit of it: its groups of torch.distributed have N members, of which the others are emulated.
    Or be one of the real ranks, where srun, torchrun, mpirun or deepspeed has started so many of
    this command. The reports of the real ranks come at the end.
    """
    job = job_of(**given)
    if export:
        print(exported(job, command, out), end="")
        return 0
    if not command:
        raise click.UsageError("gear emu run: give a program to run, as -- python train.py")
    say(f"{described(job)}: {shlex.join(command)}")
    if out is not None:
        return _run(job, command, out)
    with TemporaryDirectory(prefix="gear-emu-out-") as own:
        return _run(job, command, own)


def exported(job: Job, command: Sequence[str], out: str | None) -> str:
    """Lines for a shell, by which what a launcher starts then is of the job.

    Raises:
        UsageError: without a folder for the job's file, or with a command.
    """
    from gear.emu.start import FILE, clear, kept_in, variables

    if out is None or command:
        raise click.UsageError(
            "gear emu run --export: give --out DIR, a folder that all nodes see, and no command"
        )
    folder = kept_in(out)
    clear(folder)
    job.save(folder / FILE)
    lines = [
        f"export {name}={shlex.quote(value)}"
        for name, value in variables(folder / FILE, folder).items()
    ]
    return "\n".join(lines) + "\n"


def _run(job: Job, command: Sequence[str], out: str) -> int:
    from gear.emu.launched import place
    from gear.emu.report import read_report
    from gear.emu.start import start

    placed = place(job, os.environ)
    code = start(job, command, out)
    for rank in [int(placed["RANK"])] if placed else job.real:
        path = Path(out, f"rank-{rank}.json")
        if path.exists():
            say(f"rank {rank} of {job.ranks}\n{read_report(path)}")
        elif code == 0:
            say(
                f"rank {rank} of {job.ranks} has made no group of torch.distributed, or says above"
                " why it has left no report"
            )
    if code:
        say(f"a rank ended with exit code {code}")
    return code
