"""What users read of the module: listings, whatis, help; and what finds mistakes in it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from distribution.module_tree import ModuleTree
from distribution.project import NAME, VERSION
from distribution.shells import Shell, every_tool, start_up_folder


@pytest.fixture
def tree(tmp_path: Path) -> ModuleTree:
    tree = ModuleTree(tmp_path / "prefix")
    tree.add_site_module("site/mpi/4")
    tree.install(modules="site/mpi/4", presets={"NCCL_IB_HCA": "mlx5_0:1"})
    return tree


def said(shell: Shell, tree: ModuleTree, command: str) -> str:
    done = shell.run(f"module use {tree.folder}", command, shell.echo_status())
    assert done.stdout.endswith("status=0\n"), done.stdout + done.stderr
    return done.stdout.removesuffix("status=0\n") + done.stderr


@every_tool
def test_listed_once(shell: Shell, tree: ModuleTree) -> None:
    listed = said(shell, tree, "module -t avail gear").split()
    assert [word for word in listed if word.startswith(f"gear/{VERSION}")] == [f"gear/{NAME}"]


@every_tool
def test_whatis(shell: Shell, tree: ModuleTree) -> None:
    text = said(shell, tree, f"module whatis gear/{NAME}")
    for words in (
        "Name: GEAR",
        f"Version: {NAME}",
        "Category: ",
        "Description: ",
        "URL: https://",
    ):
        assert words in text


@every_tool
def test_help(shell: Shell, tree: ModuleTree) -> None:
    text = said(shell, tree, f"module help gear/{NAME}")
    assert f"GEAR {VERSION} (cpu)" in text
    assert "Python 3.11." in text
    assert "  $GEAR_HOME/slurm " in text
    assert "  $GEAR_HOME/examples " in text


@every_tool
def test_show_names_all_that_is_done(shell: Shell, tree: ModuleTree) -> None:
    text = said(shell, tree, f"module show gear/{NAME}")
    for words in (
        "site/mpi/4",
        "GEAR_HOME",
        "GEAR_VERSION",
        "PYTHONNOUSERSITE",
        "mlx5_0:1",
        "PATH",
    ):
        assert words in text
    assert "PYTHONPATH" not in text
    assert "ERROR" not in text


@pytest.mark.modules
@pytest.mark.parametrize("mistake", [None, "setenv X", "no-such-verb X", "setenv X {"])
def test_lint_by_environment_modules(tree: ModuleTree, mistake: str | None) -> None:
    """`module show` runs the file; `module lint` wants a program that Debian does not have."""
    file = tree.folder / "gear" / NAME
    if mistake:
        file.write_text(file.read_text() + mistake + "\n")
    done = Shell("bash", "modules").run(f"module show {file}", 'echo "status=$?"')
    assert ("status=0" in done.stdout and "ERROR" not in done.stderr) is (mistake is None)


@pytest.mark.lmod
@pytest.mark.parametrize("mistake", [None, 'setenv("X"', 'no_such_verb("X")'])
def test_lint_by_lmod(tree: ModuleTree, mistake: str | None) -> None:
    file = tree.folder / "gear" / f"{NAME}.lua"
    if mistake:
        file.write_text(file.read_text() + mistake + "\n")
    start_up = start_up_folder("lmod")
    assert start_up is not None
    check = start_up.parent / "libexec" / "check_module_tree_syntax"
    done = subprocess.run(
        [check, str(tree.folder)], capture_output=True, text=True, timeout=240, check=False
    )
    assert ("No errors found" in done.stdout + done.stderr) is (mistake is None)


@every_tool
@pytest.mark.skipif(shutil.which("man") is None, reason="this machine has no man")
def test_man_finds_the_pages_of_the_installation(shell: Shell, tree: ModuleTree) -> None:
    """Without a word about MANPATH in the module file: by PATH."""
    page = tree.home() / "share" / "man" / "man1" / "gear-test-page.1"
    page.parent.mkdir(parents=True)
    page.write_text(".TH GEAR-TEST-PAGE 1\n")
    find = f"module use {tree.folder}", "man -w gear-test-page ls"
    assert str(page) not in shell.run(*find).stdout
    assert shell.run(find[0], "module load gear", find[1]).stdout.split()[0] == str(page)
