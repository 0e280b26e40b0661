"""The options that say which job of which ranks, and the job of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gear.emu import Job

PROGRAM = {"ignore_unknown_options": True, "allow_interspersed_args": False}
OF_JOB = (
    click.option("-N", "--ranks", type=int, metavar="N", help="Ranks of the job."),
    click.option("--per-node", type=int, metavar="N", help="Ranks a node; default: 8, or all."),
    click.option(
        "--real", metavar="RANKS", help="Those that run: 0 (the default), as 0,8, as 0-3, or all."
    ),
    click.option("--links", metavar="FILE|NAME", help="Numbers of the links; default: hgx-h100."),
    click.option(
        "--set",
        "numbers",
        multiple=True,
        metavar="NAME=NUMBER",
        help="One number of the links, as nic.gb_per_s=25.",
    ),
    click.option(
        "--model",
        metavar="MODEL",
        help="two_level, none (all ranks are real), PACKAGE.MODULE:FUNCTION or FILE.csv.",
    ),
    click.option("--job", "file", metavar="FILE", help="A job file; the options above change it."),
)


def of_job(command: Callable[..., int]) -> Callable[..., int]:
    """With the options that `job_of` reads."""
    for option in reversed(OF_JOB):
        command = option(command)
    return command


def job_of(
    *,
    file: str | None,
    ranks: int | None,
    per_node: int | None,
    real: str | None,
    links: str | None,
    numbers: Sequence[str],
    model: str | None,
) -> Job:
    """The job of the file with what the options say.

    Raises:
        InvalidArgument: as Job does.
        UsageError: for words that are no numbers, and no ranks at all.
    """
    from gear.emu import Job, Links

    if file is None and ranks is None:
        raise click.UsageError("gear emu: give the ranks of the job, as -N 512, or --job FILE")
    said: dict[str, Any] = {
        "ranks": ranks,
        "per_node": per_node,
        "links": links,
        "model": model,
    }
    changes = {name: _whole(value) for name, value in said.items() if value is not None}
    job = None if file is None else Job.load(file)
    size = ranks if ranks is not None else (job.ranks if job else 0)
    if real is not None:
        changes["real"] = _ranks(real, size)
    if numbers:
        changes["set"] = {**(job.set if job else {}), **dict(map(_number, numbers))}
    made = Job(**changes) if job is None else replace(job, **changes)
    if made.set and (measured := Links.load(made.links).measured):
        say(
            f"{made.links} has {len(measured)} measured points, of its own numbers: with others"
            " given, formulas take their place"
        )
    return made


def described(job: Job) -> str:
    """Which ranks of which job run, in one line."""
    nodes = job.ranks // (job.per_node or 1)
    changed = "".join(f", {name}={value:g}" for name, value in job.set.items())
    return (
        f"real rank{'s' if len(job.real) > 1 else ''} {job.real_in_words}"
        f" on {nodes} node{'s' if nodes > 1 else ''},"
        f" links {job.links}{changed}, model {job.model}"
    )


def say(line: str) -> None:
    print(f"gear emu: {line}", file=sys.stderr, flush=True)


def _whole(value: Any) -> Any:
    """A file's name from the root, since programs change their folder; other values as they are."""
    is_file = isinstance(value, str) and Path(value).is_file()
    return str(Path(value).resolve()) if is_file else value


def _ranks(text: str, size: int) -> Sequence[int]:
    """Of `0,8`, `0-3,8` or `all`; of those past the last, the first, which a job refuses."""
    if text == "all":
        return range(size)
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        are_numbers = first.isdigit() and (last.isdigit() if dash else True)
        if not are_numbers or int(last or first) < int(first):
            raise click.UsageError(f"gear emu: --real {text}: as 0,8 or 0-3, or all")
        found += range(min(int(first), size), min(int(last or first), size) + 1)
    return found


def _number(text: str) -> tuple[str, float]:
    name, sign, value = text.partition("=")
    try:
        if sign:
            return name, float(value)
    except ValueError:
        pass
    raise click.UsageError(f"gear emu: --set {text}: a name and a number, as nic.gb_per_s=25")
