"""The commands of `gear`. Each imports what it needs when it runs: `gear --help` stays fast."""

from __future__ import annotations

import click


@click.group(
    no_args_is_help=False,
    epilog="--debug, anywhere, shows the traceback of an error.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="gear", message="gear %(version)s")
def gear() -> None:
    """Experience replay for reinforcement learning."""


@gear.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--measure", is_flag=True, help="Measure the GPUs' links; some seconds each.")
def check(as_json: bool, measure: bool) -> int:
    """Say what was built, what was found, and what is missing and what that costs."""
    from gear.cli.check import run

    return run(as_json, measure)


@gear.group(no_args_is_help=False)
def data() -> None:
    """Look at stored experience."""


@data.command()
@click.argument("path", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def inspect(path: str, as_json: bool) -> int:
    """Show what the checkpoint in the folder PATH holds, and verify its checksums.

    Exit code 2 if it is damaged.
    """
    from gear.cli.data import run

    return run(path, as_json)


@gear.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.argument("overrides", nargs=-1, type=click.UNPROCESSED)
def train(overrides: tuple[str, ...]) -> int:
    """Train an agent; OVERRIDES change the configuration, e.g. env=cartpole seed=1.

    `gear train --help` lists the configuration.
    """
    from gear.cli.train import run

    return run(list(overrides))
