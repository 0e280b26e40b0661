"""`gear emu`: a few real ranks of a job of many, and what its communication takes."""

from __future__ import annotations

import click

from gear.cli.emu.calibrate import calibrate
from gear.cli.emu.replay import replay
from gear.cli.emu.run import run
from gear.cli.emu.runs import compare, trace
from gear.cli.emu.whatif import whatif


@click.group(no_args_is_help=False)
def emu() -> None:
    """Run a few real ranks of a job of many."""


for command in (run, whatif, compare, trace, calibrate, replay):
    emu.add_command(command)
