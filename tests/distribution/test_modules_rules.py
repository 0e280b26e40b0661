"""What belongs together and what excludes each other: versions of GEAR, and modules of the site."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from distribution.module_tree import ModuleTree
from distribution.project import NAME
from distribution.shells import Shell, every_tool, read_snapshot

LATER = "9.9.0-gpu"
OLD, NEW = f"gear/{NAME}", f"gear/{LATER}"


class Session:
    """Runs commands between snapshots, all in one bash under one module tool."""

    def __init__(self, shell: Shell, tree: ModuleTree, folder: Path) -> None:
        self.shell, self.tree, self.folder = shell, tree, folder

    def run(self, *script: str, options: tuple[str, ...] = ()) -> None:
        lines = [f"module use {self.tree.folder}"]
        for number, line in enumerate(["true", *script]):
            file = self.folder / f"environment-{number}"
            lines += [line, 'echo "$?"', self.shell.snapshot(file)]
        done = self.shell.run(*lines, options=options)
        assert done.stdout.count("\n") == len(script) + 1, done.stdout + done.stderr
        self.statuses = [int(status) for status in done.stdout.split()][1:]
        self.said = done.stderr

    def after(self, number: int) -> dict[str, str]:
        """The environment after the number-th command, from 1 on; 0 is that before the first."""
        return read_snapshot(self.folder / f"environment-{number}")


@pytest.fixture
def session(shell: Shell, tmp_path: Path) -> Session:
    tree = ModuleTree(tmp_path / "prefix")
    tree.add_site_module("site/mpi/4")
    tree.install(NAME, modules="site/mpi/4")
    tree.install(LATER, modules="site/mpi/4", presets={"NCCL_IB_HCA": "mlx5_0:1"})
    return Session(shell, tree, tmp_path)


@every_tool
def test_one_version_at_a_time(session: Session) -> None:
    """Environment Modules refuses the second one, Lmod takes it in place of the first."""
    session.run(f"module load {OLD}", f"module load {NEW}", "module unload gear")
    loaded = session.after(2)
    if session.shell.tool == "modules":
        assert session.statuses[1] != 0
        assert "conflict" in session.said
        assert loaded == session.after(1)
    else:
        assert session.statuses[1] == 0
        assert loaded["GEAR_VERSION"] == "9.9.0"
    assert loaded["PATH"].count("/gear/") == 1
    assert session.after(3) == session.after(0)


@every_tool
def test_swap(session: Session) -> None:
    session.run(f"module load {OLD}", f"module swap {OLD} {NEW}", f"module unload {NEW}")
    assert session.statuses == [0, 0, 0], session.said
    loaded = session.after(2)
    assert loaded["GEAR_HOME"] == str(session.tree.home(LATER))
    assert loaded["NCCL_IB_HCA"] == "mlx5_0:1"
    assert loaded["SITE_MPI"] == "site/mpi/4"
    assert loaded["PATH"].count("/gear/") == 1
    assert session.after(3) == session.after(0)


@every_tool
def test_swap_keeps_what_the_user_had(session: Session) -> None:
    session.run(
        "export GEAR_HOME=/mine NCCL_IB_HCA=mlx5_2:1",
        f"module load {OLD}",
        f"module swap {OLD} {NEW}",
        f"module swap {NEW} {OLD}",
        f"module unload {OLD}",
    )
    assert session.statuses == [0] * 5, session.said
    assert session.after(3)["NCCL_IB_HCA"] == "mlx5_0:1"
    assert session.after(4)["NCCL_IB_HCA"] == "mlx5_2:1"
    assert session.after(5) == session.after(1)


@every_tool
def test_purge(session: Session) -> None:
    session.run(f"module load {NEW}", "module purge")
    assert session.statuses == [0, 0], session.said
    assert session.after(2) == session.after(0)


@every_tool
def test_loading_twice_is_loading_once(session: Session) -> None:
    session.run(f"module load {OLD}", f"module load {OLD}", f"module unload {OLD}")
    assert session.statuses == [0, 0, 0], session.said
    assert session.after(2) == session.after(1)
    assert session.after(3) == session.after(0)


@every_tool
def test_what_the_user_loaded_stays(session: Session) -> None:
    session.run("module load site/mpi/4", f"module load {OLD}", f"module unload {OLD}")
    assert session.statuses == [0, 0, 0], session.said
    assert session.after(3) == session.after(1)
    assert session.after(3)["SITE_MPI"] == "site/mpi/4"


@every_tool
def test_missing_site_module(session: Session) -> None:
    (session.tree.folder / "site/mpi/4").unlink()
    session.run(f"module load {OLD}")
    assert session.statuses != [0]
    assert "site/mpi/4" in session.said
    assert session.after(1) == session.after(0)


@every_tool
@pytest.mark.parametrize("kept", [f"gear/{NAME}", "gear"])
def test_not_installed(session: Session, kept: str) -> None:
    """Nothing is loaded, and the words say why."""
    shutil.rmtree(session.tree.prefix / kept)
    session.run(f"module load {OLD}")
    assert session.statuses == [1]
    words = " ".join(session.said.split())
    home = session.tree.home()
    assert f"GEAR {NAME} is not installed in {home} any more, or that folder is closed" in words
    assert session.after(1) == session.after(0)


@every_tool
def test_a_python_that_cannot_be_reached(session: Session) -> None:
    """To the module tool, one below a closed folder and one that is gone are the same."""
    python = session.tree.home() / "bin" / "python"
    python.unlink()
    python.symlink_to("/closed/bin/python3")
    session.run(f"module load {OLD}")
    assert session.statuses == [1]
    words = " ".join(session.said.split())
    assert (
        f"The Python of GEAR {NAME}, {sys.executable}, is there no more or closed to you" in words
    )
    assert "not installed" not in words
    assert session.after(1) == session.after(0)


@every_tool
def test_pythonhome_is_refused(session: Session) -> None:
    """With it, no Python but its own starts."""
    session.run(
        "export PYTHONHOME=/usr", f"module load {OLD}", "unset PYTHONHOME", f"module load {OLD}"
    )
    assert session.statuses == [0, 1, 0, 0], session.said
    assert "unset PYTHONHOME, then load the module again" in " ".join(session.said.split())
    assert session.after(2) == session.after(1)


@every_tool
def test_loaded_over_a_venv_it_says_whose_python_is_whose(session: Session) -> None:
    session.run(f"module load {OLD}", "module unload gear")
    assert "venv" not in session.said
    session.run("export VIRTUAL_ENV=/mine", f"module load {OLD}", "module unload gear")
    assert session.statuses == [0, 0, 0], session.said
    words = " ".join(session.said.split())
    assert words.count("A venv is active, but python and pip are those of GEAR now") == 1
    assert session.after(3) == session.after(1)


@every_tool
def test_unloading_needs_no_installation(session: Session) -> None:
    session.run(f"module load {OLD}", f"rm -rf {session.tree.home()}", f"module unload {OLD}")
    assert session.statuses == [0, 0, 0], session.said
    assert session.after(3) == session.after(0)


@every_tool
@pytest.mark.parametrize("name", [NAME, LATER])
def test_default_version(session: Session, name: str) -> None:
    session.tree.default(name)
    session.run("module load gear", "module unload gear")
    assert session.after(1)["GEAR_HOME"] == str(session.tree.home(name)), session.said
    assert session.after(2) == session.after(0)


@every_tool
def test_variables_that_the_user_took_away(session: Session) -> None:
    session.run(
        "export GEAR_HOME=/mine",
        f"module load {OLD}",
        "unset GEAR_HOME GEAR_VERSION",
        f"module unload {OLD}",
    )
    assert session.statuses == [0] * 4, session.said
    assert session.after(4) == session.after(1)


@every_tool
def test_under_strict_options(session: Session) -> None:
    session.run(f"module load {OLD}", f"module unload {OLD}", options=("-eu",))
    assert session.statuses == [0, 0]
    assert session.after(2) == session.after(0)
