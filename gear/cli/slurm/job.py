"""`gear slurm render` and `submit`: a template with its lines set, checked, given to sbatch."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gear.cli.slurm import cluster, fit
from gear.cli.slurm.template import long_name, read
from gear.errors import InvalidArgument


def render(name: str, nodes: str | None, time: str | None, settings: Sequence[str]) -> str:
    """The text of the job script; raises InvalidArgument if the cluster cannot give what it asks.

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
    for options in template.parts:
        if warning := fit.check(options, there):
            print(f"gear: {warning}", file=sys.stderr)
    return template.text


def submit(text: str, name: str, words: Sequence[str]) -> int:
    """Hands the script to sbatch, with the words that follow it, and prints what sbatch says."""
    with tempfile.TemporaryDirectory(prefix="gear-slurm-") as folder:
        script = Path(folder) / f"{Path(name).name.removesuffix('.sbatch')}.sbatch"
        script.write_text(text, encoding="utf-8")
        done = subprocess.run(
            ["sbatch", str(script), *words], capture_output=True, text=True, check=False
        )
    print(done.stdout, end="")
    if done.returncode != 0:
        said = " ".join(done.stderr.replace("sbatch: error: ", "").split())
        raise InvalidArgument(f"[slurm] sbatch refuses the job: {said}")
    print(done.stderr, end="", file=sys.stderr)
    return 0
