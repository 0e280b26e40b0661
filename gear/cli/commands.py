"""The commands of `gear`. Each imports what it needs when it runs: `gear --help` stays fast."""

from __future__ import annotations

from collections.abc import Callable

import click

from gear.cli.emu import emu


@click.group(
    no_args_is_help=False,
    epilog="--debug, anywhere, shows the traceback of an error.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="gear-replay", message="gear %(version)s")
# The launcher `deepspeed` puts it before all other words; LOCAL_RANK says the same.
@click.option("--local_rank", type=int, hidden=True, expose_value=False)
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


@data.command()
@click.argument("words", nargs=-1)
def collect(words: tuple[str, ...]) -> int:
    """Play an environment and save what was seen, for `gear train data=saved`.

    WORDS: env=NAME policy=CHECKPOINT|random steps=10000 out=DIR seed=1 random=0.0 trust=false

    Whole episodes, until there are `steps` steps. The policy of a checkpoint, or an exported one,
    is greedy, but for a share `random` of its actions. It may be a stranger's: an environment that
    it names is used if it is known here; trust=true uses any.
    """
    from gear.cli.play import collect

    return collect(list(words))


@gear.command(name="eval")
@click.argument("checkpoint", type=click.Path(exists=True))
@click.argument("words", nargs=-1)
def evaluate(checkpoint: str, words: tuple[str, ...]) -> int:
    """Play what was trained, greedily; write a table and a picture of an episode.

    CHECKPOINT is a run's folder, or one of its checkpoints, of any number of ranks; or an exported
    policy: policy.pt, or best_policy.pt of the best evaluation.

    WORDS: env=NAME episodes=10 video=FILE.gif out=DIR seed=0 device=cpu trust=false

    CHECKPOINT may be a stranger's: an environment that it names is used if it is known here, and
    files that it names are not read; trust=true uses all that it names.
    """
    from gear.cli.play import evaluate

    return evaluate(checkpoint, list(words))


@gear.group(no_args_is_help=False)
def bench() -> None:
    """Measure this machine."""


@bench.command()
@click.option(
    "--row-bytes",
    type=click.IntRange(1, 1 << 24),
    multiple=True,
    help="Size of a row; may be given several times. Default: 64, 256, 1024, ... 65536.",
)
@click.option("--seconds", type=click.FloatRange(0.001), default=1.0, help="Of each; default 1.")
@click.option(
    "--pool-mib", type=click.IntRange(1), default=256, help="The other's rows; default 256 MiB."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def links(row_bytes: tuple[int, ...], seconds: float, pool_mib: int, as_json: bool) -> int:
    """Measure rows between two ranks, by everything that carries them, beside what bounds them.

    Between two nodes: srun -N 2 -n 2 gear bench links. By itself, between two processes here.
    """
    from gear.cli.bench.links import run
    from gear.cli.bench.rates import Work

    return run(row_bytes, Work(pool_bytes=pool_mib << 20, seconds=seconds), as_json)


@gear.group(no_args_is_help=False)
def gpu() -> None:
    """Look at the GPUs of this machine."""


@gpu.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def query(as_json: bool) -> int:
    """Show name, compute capability, memory and NVLink of each GPU, and nvcc's flags for them.

    All GPUs of the machine, or of the job or container, whatever CUDA_VISIBLE_DEVICES says.
    """
    from gear.cli.gpu.query import run

    return run(as_json)


@gpu.command()
@click.option(
    "--user",
    is_flag=False,
    flag_value="",
    metavar="[NAME]",
    help="Only processes of this user; without a name, yours.",
)
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def ps(user: str | None, watch: bool, as_json: bool) -> int:
    """Show the processes on the GPUs of this machine: user, command, memory, utilisation."""
    from gear.cli.gpu.ps import run

    return run(user, watch, as_json)


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


@gear.command(name="run", context_settings={"allow_interspersed_args": False})
@click.option("-n", "size", type=click.IntRange(min=1), required=True, help="Number of ranks.")
@click.option(
    "--backend",
    type=click.Choice(["gear_mpi", "gloo", "nccl"]),
    help="What SCRIPT gives to init_process_group; default: gear_mpi where it is, else gloo.",
)
@click.option(
    "--launcher",
    type=click.Choice(["mpirun", "srun", "torchrun"]),
    help="Default: srun in a job of Slurm, else mpirun, for gear_mpi; torchrun for the others.",
)
@click.option("--options", default="", help="Words for the launcher, as in '--oversubscribe'.")
@click.option(
    "--logs", metavar="DIR", help="Folder for what ranks write; default: outputs/run-TIME."
)
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module.")
@click.argument("script")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def run_ranks(
    size: int,
    backend: str | None,
    launcher: str | None,
    options: str,
    logs: str | None,
    is_module: bool,
    script: str,
    words: tuple[str, ...],
) -> int:
    """Start the Python program SCRIPT on several ranks, with WORDS as its arguments.

    Prints the launcher's command line and shows what rank 0 writes; DIR/rank-N.log holds what rank
    N writes. The exit code is that of the rank that failed first.
    """
    from gear.cli.launch.run import run

    return run(size, backend, launcher, options, logs, is_module, [script, *words])


@gear.group(no_args_is_help=False)
def slurm() -> None:
    """Make job scripts from GEAR's templates, and submit them."""


def _of_a_job(command: Callable[..., int]) -> Callable[..., int]:
    """What render and submit take."""
    for option in (
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="OPTION=VALUE",
            help="Any other option of sbatch, as in partition=gpu; 1:nodes=4 sets it for the "
            "second part of a heterogeneous job.",
        ),
        click.option("--time", metavar="TIME", help="Time limit: minutes, H:MM:SS or D-HH:MM:SS."),
        click.option("--nodes", metavar="N", help="Number of nodes."),
        click.argument("template"),
    ):
        command = option(command)
    return command


@slurm.command()
@_of_a_job
def render(template: str, nodes: str | None, time: str | None, settings: tuple[str, ...]) -> int:
    """Print the job script TEMPLATE with its #SBATCH lines set.

    TEMPLATE is a name, as 1node, or a file. Refuses what `sinfo` says the partition cannot give.
    """
    from gear.cli.slurm import job

    print(job.render(template, nodes, time, settings), end="")
    return 0


@slurm.command(context_settings={"ignore_unknown_options": True})
@_of_a_job
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def submit(
    template: str,
    nodes: str | None,
    time: str | None,
    settings: tuple[str, ...],
    words: tuple[str, ...],
) -> int:
    """Submit the job script TEMPLATE with its #SBATCH lines set; WORDS go to `gear train`.

    TEMPLATE is a name, as 1node, or a file. Refuses what `sinfo` says the partition cannot give.
    """
    from gear.cli.slurm import job

    return job.submit(job.render(template, nodes, time, settings), template, words)


gear.add_command(emu)


@gear.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
def compare(folders: tuple[str, ...]) -> int:
    """Compare training runs: one table and one plot, a curve for each of FOLDERS.

    The runs below a folder are repetitions with other seeds: a curve is their mean, with its 95 %
    interval. All are of one environment, and each is there once. The plot is compare.png in the
    first folder.
    """
    from gear.cli.train import check_installed

    check_installed()
    from gear.train.record.compare import run

    return run(folders)
