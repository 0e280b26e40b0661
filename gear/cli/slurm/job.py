"""`gear slurm render` and `submit`: a template with its lines set, checked, given to sbatch."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gear.cli.slurm import cluster, fit
from gear.cli.slurm.template import long_name, read
from gear.errors import InvalidArgument

TEST_S = 60.0  # for Slurm to say whether it would run a job


def render(name: str, nodes: str | None, time: str | None, settings: Sequence[str]) -> str:
    """The text of the job script; raises InvalidArgument if the cluster cannot give what it asks,
    by what `sinfo` tells and by `sbatch --test-only`.

    settings: `option=value` or `option` of sbatch; `1:option=value` for the second part of a
    heterogeneous job.
    """
    template = read(name)
    given = [f"{key}={value}" for key, value in (("nodes", nodes), ("time", time)) if value]
    for setting in [*given, *settings]:
        match = re.fullmatch(r"(?:(\d+):)?(-\w|(?:--)?\w[\w-]+)(?:=(.*))?", setting)
        if match is None:
            raise InvalidArgument(
                f"[slurm] --set {setting}: an option of sbatch is allowed, as in partition=gpu or "
                "exclusive; 1:nodes=4 is for the second part of a heterogeneous job"
            )
        part, option, value = match.groups()
        template.set(long_name(option), value or "", int(part or 0))
    there = cluster.partitions()
    warnings = [warning for options in template.parts if (warning := fit.check(options, there))]
    if not warnings:  # else it is known already what Slurm would say: it tells of nodes that are up
        away = sum(fit.num_away(options, there) for options in template.parts)
        warnings = _asked(template.text, name, away)
    for warning in warnings:
        print(f"gear: {warning}", file=sys.stderr)
    return template.text


def submit(text: str, name: str, words: Sequence[str]) -> int:
    """Hands the script to sbatch, with the words that follow it, and prints what sbatch says."""
    with _file(text, name) as script:
        done = _sbatch(str(script), *words)
    print(done.stdout, end="")
    if done.returncode != 0:
        raise InvalidArgument(f"[slurm] sbatch refuses the job: {_said(done)}")
    print(done.stderr, end="", file=sys.stderr)
    return 0


# What Slurm says of nodes that it has and would not give to this job now.
_NOT_NOW = re.compile(r"\b(down|drained|reserved|busy)\b", re.IGNORECASE)


def _asked(text: str, name: str, away: int) -> list[str]:
    """Raises InvalidArgument if Slurm would not run the job: it knows all of its options, and `fit`
    some. Returns a warning if that may be for want of nodes that are away, so many of them: it is
    asked about those that are up.
    """
    with _file(text, name) as script:
        done = _sbatch("--test-only", str(script), timeout_s=TEST_S)
    said = _said(done)
    if done.returncode == 0:
        return []
    if _NOT_NOW.search(said):
        return [f"[slurm] the job has to wait: {said}"]
    if away and "not available" in said:
        return [
            f"[slurm] on the nodes that are up Slurm would not run the job: {said}; {away} node(s) "
            "of its partitions are away: it waits for these, or sbatch refuses it"
        ]
    raise InvalidArgument(f"[slurm] sbatch refuses the job: {said}")


def _sbatch(*words: str, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["sbatch", *words], capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError as error:
        raise InvalidArgument(
            "[slurm] sbatch checks and takes jobs, and is not here: run this on a login node"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise InvalidArgument(
            f"[slurm] sbatch --test-only does not answer within {timeout_s:g} s: look at the "
            "cluster's state with sinfo, and try again"
        ) from error


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join(done.stderr.replace("sbatch: error: ", "").split())


@contextmanager
def _file(text: str, name: str) -> Iterator[Path]:
    """The script, by the name that Slurm shows."""
    with tempfile.TemporaryDirectory(prefix="gear-slurm-") as folder:
        script = Path(folder) / f"{Path(name).name.removesuffix('.sbatch')}.sbatch"
        script.write_text(text, encoding="utf-8")
        yield script
