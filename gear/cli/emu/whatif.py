"""`gear emu whatif`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from gear.cli.emu.job import PROGRAM, described, job_of, of_job, say

VARIED = ("ranks", "per_node", "links", "model")  # and numbers of links


@click.command(context_settings=PROGRAM)
@click.option(
    "--vary",
    "varied",
    multiple=True,
    required=True,
    metavar="NAME=VALUE,VALUE...",
    help="ranks, per_node, links, model, or a number of the links, as nic.gb_per_s; several: each "
    "value with each of the others.",
)
@of_job
@click.option("--out", metavar="DIR", help="Keep the reports of each run in a folder of its own.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def whatif(command: tuple[str, ...], varied: tuple[str, ...], out: str | None, **given: Any) -> int:
    """Run COMMAND as several jobs, one after the other, and print one table of their steps.

    Of each run the real rank whose steps were longest. A run that fails does not keep the others;
    exit code 1 if there was one.
    """
    from gear.emu.whatif import check, combined, run_as, table

    all_values = combined(_varied(varied))
    jobs = [job_of(**_with(given, values)) for values in all_values]
    check(jobs, all_values)
    outcomes = []
    with TemporaryDirectory(prefix="gear-emu-out-") as own:
        for values, job in zip(all_values, jobs, strict=True):
            say(f"{described(job)}: {shlex.join(command)}")
            outcomes.append(run_as(values, job, command, Path(out or own)))
            if outcomes[-1].was_told:
                break
    print(table(outcomes))
    return int(any(outcome.code or outcome.was_told for outcome in outcomes))


def _varied(texts: Sequence[str]) -> dict[str, list[str]]:
    """The values by name."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, sign, values = text.partition("=")
        if not (name and sign and all(values.split(","))):
            raise click.UsageError(
                f"gear emu whatif: --vary {text}: a name and values, as ranks=64,512"
            )
        if "." not in name and name not in VARIED:
            raise click.UsageError(
                f"gear emu whatif: --vary {text}: {', '.join(VARIED)} and numbers of the links, as"
                " nic.gb_per_s, can be varied"
            )
        if name in found:
            raise click.UsageError(f"gear emu whatif: --vary {text}: {name} is varied twice")
        found[name] = values.split(",")
    return found


def _with(given: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """The options of a job, those varied in place of the given: the links have the other names."""
    for name, one in values.items():
        if name not in VARIED and not _is_number(one):
            raise click.UsageError(f"gear emu whatif: --vary {name}={one}: a number is allowed")
    whole = {
        name: _count(name, one) for name, one in values.items() if name in ("ranks", "per_node")
    }
    words = {name: one for name, one in values.items() if name in ("links", "model")}
    numbers = [f"{name}={one}" for name, one in values.items() if name not in {*whole, *words}]
    return {**given, **whole, **words, "numbers": (*given["numbers"], *numbers)}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _count(name: str, text: str) -> int:
    if not text.isdigit():
        raise click.UsageError(f"gear emu whatif: --vary {name}={text}: a whole number is allowed")
    return int(text)
