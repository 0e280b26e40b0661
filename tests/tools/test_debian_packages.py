"""tools/debian_packages.sh: names what is missing and what is lost without it, and no more."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import RESOURCES

SCRIPT = Path(__file__).parents[2] / "tools" / "debian_packages.sh"
ITS_COMMANDS = "awk bash cat dirname echo env grep id ldconfig mkdir wc xargs".split()


def run(level: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", SCRIPT, level],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A PATH with neither compilers nor shells nor apt-get."""
    for name in ITS_COMMANDS:
        found = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        assert found is not None, name
        (tmp_path / name).symlink_to(found)
    return str(tmp_path)


def test_missing_on_a_bare_machine(bare: str) -> None:
    done = run("missing", bare)
    assert done.returncode == 0, done.stderr
    lost = dict(line.split(": needs ") for line in done.stdout.splitlines())
    assert lost["building GEAR"]
    assert lost["native C++ tests"] == "doctest-dev"
    assert lost["tests of modules and venvs in tcsh"] == "tcsh"


@pytest.mark.parametrize("level", ["train", "dev"])
def test_without_a_compiler(level: str, bare: str) -> None:
    done = run(level, bare)
    assert done.returncode == 1
    assert "\n  building GEAR: needs g++\n" in done.stdout
    assert "sudo apt-get install --no-install-recommends g++" in done.stdout
    assert ("zsh" in done.stdout) is (level == "dev")


@pytest.mark.parametrize(
    ("resource", "lost"),
    [
        ("modules", "tests under Environment Modules"),
        ("lmod", "tests under Lmod"),
        ("rdma", "tests of RDMA in virtual machines"),
        ("slurm", "tests of the Slurm templates"),
        ("zsh", "tests of modules and venvs in zsh"),
        ("tcsh", "tests of modules and venvs in tcsh"),
        ("fish", "tests of modules and venvs in fish"),
    ],
)
def test_agrees_with_what_is_skipped(resource: str, lost: str) -> None:
    named = any(line.startswith(lost + ":") for line in run("missing").stdout.splitlines())
    if resource == "rdma" and not named:
        return  # it takes Debian's kernel, too
    if resource == "slurm" and os.geteuid() != 0:
        return  # skipped for want of rights, whatever is installed
    assert RESOURCES[resource]() is not named


def test_unknown_level() -> None:
    done = run("everything")
    assert done.returncode == 2
    assert "unknown level 'everything'" in done.stderr
