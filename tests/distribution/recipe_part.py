"""Runs functions of recipes/*.sh by themselves, with what build.sh would have set up for them."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from distribution.project import REPOSITORY


def run_part(
    part: str,
    script: str,
    folder: Path,
    *,
    site: Mapping[str, str] | None = None,
    kind: str = "cpu",
    source: Path = REPOSITORY,
) -> subprocess.CompletedProcess[str]:
    """Sources recipes/`part` of `source` and runs `script` after it; both layers are
    `folder`/build."""
    build = folder / "build"
    (build / "share/gear").mkdir(parents=True, exist_ok=True)
    (folder / "scratch").mkdir(exist_ok=True)
    variables = {
        "SOURCE": source,
        "BUILD": build,
        "BASE": build,
        "LAYER": build,
        "RECORD": build / "share/gear/record",
        "CACHE": folder / "cache",
        "LOG": folder / "log",
        "SCRATCH": folder / "scratch",
        "PREFIX": folder,
        "KIND": kind,
        "DRY_RUN": "0",
        "STEP": "mpi4py",
        "PYTHON": "python3",
    }
    values = {"cc": "gcc", "cxx": "g++", "mpi": "off", **(site or {})}
    lines = [
        "set -euo pipefail",
        *(f"{name}={shlex.quote(str(value))}" for name, value in variables.items()),
        *(
            f". $SOURCE/recipes/{name}.sh"
            for name in ("report", "diagnose", "site", "users", "machine", "inputs", "pip")
        ),
        'while read -r key _ value; do [ -z "$key" ] || SITE[$key]=$value; done <<<"$site_keys"',
        *(f"SITE[{key}]={shlex.quote(value)}" for key, value in values.items()),
        f". $SOURCE/recipes/{part}",
        ': >>"$LOG"',
        script,
    ]
    return subprocess.run(
        ["bash", "-c", "\n".join(lines)], capture_output=True, text=True, timeout=240, cwd=folder
    )


def fake_python(build: Path, answer: str) -> None:
    """A venv's python that prints `answer` (shell) whatever it is asked."""
    python = build / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f"#!/bin/sh\n{answer}\n")
    python.chmod(0o755)
