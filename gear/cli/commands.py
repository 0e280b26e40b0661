"""The commands of `gear`. Each imports what it needs when it runs: `gear --help` stays fast."""

from __future__ import annotations

import click


@click.group(
    no_args_is_help=False,
    epilog="--debug, anywhere, shows the traceback of an error.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="gear-replay", message="gear %(version)s")
def gear() -> None:
    """Experience replay for reinforcement learning."""


@gear.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--measure", is_flag=True, help="Measure the GPUs' links; some seconds each.")
@click.option(
    "--build", is_flag=True, help="Only what the installation is made of; asks every package."
)
@click.option(
    "--manifest",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Compare the installation with its manifest; default: that of $GEAR_HOME.",
)
def check(as_json: bool, measure: bool, build: bool, manifest: str | None) -> int:
    """Say what was built, what was found, and what is missing and what that costs.

    Exit code 1 if --build finds something that is installed and does not work, or --manifest a
    difference.
    """
    if measure + build + (manifest is not None) > 1:
        raise click.UsageError("--measure, --build and --manifest exclude each other: give one")
    if build:
        from gear.cli import check_build

        return check_build.run(as_json)
    if manifest is not None:
        from gear.cli import check_manifest

        return check_manifest.run(manifest, as_json)
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


@gear.group(no_args_is_help=False)
def gpu() -> None:
    """Look at the GPUs of this machine."""


@gpu.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def query(as_json: bool) -> int:
    """Show name, compute capability, memory and NVLink of each GPU, and nvcc's flags for them.

    All GPUs of the machine, or of the job or container, whatever CUDA_VISIBLE_DEVICES says.
    """
    from gear.cli.gpu_query import run

    return run(as_json)


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
