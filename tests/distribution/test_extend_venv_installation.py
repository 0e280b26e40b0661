"""A venv that extends the installed module, as INSTALL.md has a user make it."""

from __future__ import annotations

from pathlib import Path

from distribution.conftest import Installation
from distribution.shells import Shell, every_shell, every_tool, read_snapshot

# Run by the module's torchrun: what the venv has, and what it sees of the module.
SCRIPT = """import sys
import mine, torch, gear
from importlib.util import find_spec
assert find_spec("mpi4py") and find_spec("deepspeed") and find_spec("horovod")
print("prefix", sys.prefix, "mine", mine.here, "torch", torch.__file__, "gear", gear.__file__)
"""


def make(shell: Shell, installation: Installation, venv: Path) -> None:
    done = shell.run(
        f"module use {installation.modulefiles}",
        f"module load {installation.name}",
        f"python -m venv --without-pip {venv}",
        f"extend-venv-activate {venv}",
        "module unload gear",
    )
    assert done.stdout == f"'{venv}' extends {installation.name}\n", done.stderr


@every_tool
def test_the_commands_of_the_module_see_the_packages_of_the_venv(
    shell: Shell, installation: Installation, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    make(shell, installation, venv)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "mine.py").write_text("here = True\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    done = shell.run(
        f"source {venv}/bin/activate",
        f"torchrun --nproc-per-node 1 {tmp_path}/script.py",
        "gear --version",
        'echo "$GEAR_HOME"',
    )
    assert done.returncode == 0, done.stderr
    packages = f"lib/{site.parent.name}/site-packages"
    said = done.stdout.splitlines()
    assert said[0] == (
        f"prefix {venv} mine True torch {installation.base}/{packages}/torch/__init__.py"
        f" gear {installation.home.resolve()}/{packages}/gear/__init__.py"
    )
    assert said[1].startswith("gear")
    assert said[2] == str(installation.home)


@every_shell
def test_activation_and_deactivation_with_the_real_modulefile(
    shell: Shell, installation: Installation, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    make(shell, installation, venv)
    suffix = {"tcsh": ".csh", "fish": ".fish"}.get(shell.name, "")
    done = shell.run(
        *{"tcsh": ['set prompt = "% "'], "fish": []}.get(shell.name, ['export PS1="$ "']),
        shell.snapshot(tmp_path / "before"),
        shell.source(venv / f"bin/activate{suffix}"),
        shell.snapshot(tmp_path / "active"),
        "deactivate",
        shell.snapshot(tmp_path / "after"),
    )
    assert "[venv]" not in done.stderr
    active = read_snapshot(tmp_path / "active")
    assert active["GEAR_HOME"] == str(installation.home)
    assert active["PATH"].split(":")[:2] == [f"{venv}/bin", f"{installation.home.resolve()}/bin"]
    assert read_snapshot(tmp_path / "after") == read_snapshot(tmp_path / "before")
