"""What a user runs after `module load gear`."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from distribution.shells import Shell

if TYPE_CHECKING:
    from distribution.conftest import Installation

BASH = Shell("bash", "modules")


def after_load(installation: Installation, *lines: str, env: dict[str, str] | None = None) -> str:
    """What the lines print in a fresh shell with the module loaded; all of them succeed."""
    done = in_module(installation, *lines, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def in_module(
    installation: Installation, *lines: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Their output, and how they end; the first that fails ends them."""
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return BASH.run(
        f"module use {installation.modulefiles}",
        f"module load {installation.name}",
        *lines,
        env={"OMP_NUM_THREADS": "1", **(root if os.geteuid() == 0 else {}), **(env or {})},
        options=("-e",),
        timeout_s=240,
    )
