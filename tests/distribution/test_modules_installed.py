"""What a user of the real installation gets by `module load gear`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from distribution.project import REPOSITORY
from distribution.recipe import Installation
from distribution.shells import Shell, every_shell, every_tool, read_snapshot

COMMANDS = "gear python python3 torchrun horovodrun deepspeed".split()
COMMANDS += ["extend-venv-activate", "display-gpu-info.sh"]
TEMPLATES = {"env.sh", "1node.sbatch", "multinode-srun.sbatch"}
PROGRAMS = {
    file.name for file in (REPOSITORY / "examples/process_group").iterdir() if file.is_file()
}
LOGIN_FILES = [Path("/etc/profile.d/modules.sh"), Path("/etc/profile.d/lmod.sh")]


@every_shell
def test_commands_and_templates(shell: Shell, installation: Installation, tmp_path: Path) -> None:
    done = shell.run(
        f"module use {shell.quote(installation.modulefiles)}",
        shell.snapshot(tmp_path / "before"),
        "module load gear",
        shell.snapshot(tmp_path / "loaded"),
        "module unload gear",
        shell.snapshot(tmp_path / "after"),
    )
    before, loaded, after = (read_snapshot(tmp_path / n) for n in ("before", "loaded", "after"))
    assert loaded["GEAR_HOME"] == str(installation.home), done.stderr
    found = {name: shutil.which(name, path=loaded["PATH"]) for name in COMMANDS}
    build = installation.home.resolve()  # an update moves the link, not what is in use
    assert found == {name: f"{build}/bin/{name}" for name in COMMANDS}
    assert {file.name for file in Path(loaded["GEAR_HOME"], "slurm").iterdir()} >= TEMPLATES
    programs = Path(loaded["GEAR_HOME"], "examples", "process_group")
    assert {file.name for file in programs.iterdir() if file.is_file()} == PROGRAMS
    assert os.access(programs / "run.sh", os.X_OK)
    assert "PYTHONPATH" not in loaded
    assert after == before


@every_tool
def test_imports(shell: Shell, installation: Installation, tmp_path: Path) -> None:
    names = "gear, torch, mpi4py.MPI, deepspeed, horovod.torch"
    done = shell.run(
        f"module use {shell.quote(installation.modulefiles)}",
        "module load gear",
        f"python -c 'import {names}; print(gear.__file__)'",
        cwd=tmp_path,
    )
    assert done.stdout.splitlines()[-1:], done.stderr
    assert Path(done.stdout.splitlines()[-1]).is_relative_to(installation.home.resolve().parents[1])


@pytest.mark.skipif(
    not any(file.exists() for file in LOGIN_FILES), reason="login shells here have no module tool"
)
def test_login_shell(installation: Installation, tmp_path: Path) -> None:
    """Without a line of ours: as the system's start-up files set `module` up."""
    load = f"module use '{installation.modulefiles}' && module load gear && command -v gear"
    done = subprocess.run(
        ["bash", "-l", "-c", load],
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout == f"{installation.home.resolve()}/bin/gear\n", done.stderr
