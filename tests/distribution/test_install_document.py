"""The commands that the documents give to users of the module, run as they stand, each section
in a login shell of its own.

A fence "bash module" marks them; a block of text right after it is what they print, with "..." for
what differs between machines: within a line, or as a line of its own for any number of lines.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from docs.documents import ROOT, Block, blocks, documented, lines_of
from docs.ran import ran

from distribution.shells import start_up_folder

if TYPE_CHECKING:
    from distribution.conftest import Installation

BLOCKS = blocks("bash", "module")
END = "-- end of block --"

# What tests are run with and users' shells are not; and mpirun, which is careful with root.
NOT_A_USER_S = ("VIRTUAL_ENV", "PYTHONPATH", "LOADEDMODULES", "_LMFILES_", "MODULEPATH")
OF_MPIRUN = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
}


def in_a_login_shell(
    script: str, folder: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Of a user, on a machine of any number of cores; it ends at the first command that fails."""
    start = start_up_folder("modules") / "bash"  # where no package did it for login shells
    script = f"command -v module >/dev/null || . {start}\nset -eo pipefail\n{script}"
    env = {name: value for name, value in os.environ.items() if name not in NOT_A_USER_S}
    own = str(Path(sys.executable).parent)
    path = [folder for folder in env["PATH"].split(":") if folder != own]
    return subprocess.run(
        ["bash", "-l", "-c", script],
        cwd=folder,
        env=env | OF_MPIRUN | {"COLUMNS": "80", "PATH": ":".join(path)} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def run_blocks(shown: list[Block], prefix: Path, home: Path) -> dict[Block, str]:
    """What each prints, all run in one login shell, /opt/gear and ~ being these folders.

    Those who install are in a clone, those who use what is installed at home.
    """

    def here(text: str) -> str:
        text = text.replace("/opt/gear", str(prefix)).replace("~/", f"{home}/")
        return text.replace("/opt/other", str(home / "other"))

    script = "".join(f"{here(block.code)}printf '%s\\n' '{END}'\n" for block in shown)
    installs = any("recipes/" in block.code for block in shown)
    done = in_a_login_shell(script, ROOT if installs else home)
    said = done.stdout.replace(str(home / "other"), "/opt/other")
    said = said.replace(str(prefix), "/opt/gear").replace(str(home), "/home/you")
    printed = said.split(f"{END}\n")
    if done.returncode != 0:
        failed = shown[len(printed) - 1]
        pytest.fail(f"{failed.name}: exit code {done.returncode}\n{failed.code}{printed[-1]}")
    for block in shown:
        for command in lines_of(block):
            ran(command, here(command))
    return dict(zip(shown, printed[:-1], strict=True))


@pytest.fixture(scope="module")
def printed(
    installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> dict[Block, str]:
    home = tmp_path_factory.mktemp("home")
    found = {}
    for _, shown in itertools.groupby(BLOCKS, lambda block: (block.document, block.section)):
        found |= run_blocks(list(shown), installation.prefix, home)
    return found


def pattern(output: str) -> str:
    lines = (
        r"(?:.*\n)*" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r" *\n"
        for line in output.splitlines()
    )
    return "".join(lines)


@pytest.mark.modules
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_block_runs_and_prints_what_it_says(block: Block, printed: dict[Block, str]) -> None:
    if block.output is not None:
        said = printed[block]
        assert re.fullmatch(pattern(block.output), said), f"{block.name} printed:\n{said}"


@pytest.mark.modules
def test_the_commands_of_readme(installation: Installation, tmp_path: Path) -> None:
    """Where the site has said `module use`, and the user has made the venv."""
    shown = [documented("module load gear"), documented("extend-venv-activate my-venv")]
    load, extend = shown
    script = "\n".join((load, "python -m venv --without-pip my-venv", extend))
    done = in_a_login_shell(script, tmp_path, MODULEPATH=str(installation.modulefiles))
    assert done.returncode == 0, done.stdout
    for command in shown:
        ran(command)


@pytest.mark.parametrize("block", blocks("conf"), ids=lambda block: block.name)
def test_example_of_a_site_file_is_one(block: Block, tmp_path: Path) -> None:
    site = tmp_path / "site.conf"
    site.write_text(block.code)
    build = ["recipes/build.sh", site, "--prefix", tmp_path / "prefix", "--dry-run"]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "module load" in done.stdout


def test_the_doors_are_open() -> None:
    install = [block for block in BLOCKS if block.document.name == "INSTALL.md"]
    code = "".join(block.code for block in install)
    for command in ("module load gear", "extend-venv-activate", "recipes/build.sh", "mpirun"):
        assert command in code
    assert sum(block.output is not None for block in install) >= 5


def test_the_third_door_ends_in_commands_that_run() -> None:
    """With the GEAR of these tests. How to get there compiles GEAR, which takes minutes: CI does it
    by tools/documented.py in the source tree and tools/check_install.sh in an environment of one's
    own."""
    (block,) = (
        each
        for each in blocks("bash")
        if each.document.name == "INSTALL.md" and "check_visible_device" in each.code
    )
    own = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", block.code], env={**os.environ, "PATH": own}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^CHECK visible_device_count\.+\d+\.$", done.stdout, re.M), done.stdout


@pytest.mark.parametrize(
    ("output", "printed", "same"),
    [
        ("a\n", "a\n", True),
        ("a\n", "a\nb\n", False),
        ("a...c\n", "abc\n", True),
        ("a...c\n", "ab\nc\n", False),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\nd\n", "a\nd\n", True),
        ("a\n...\nd\n", "a\nb\nc\n", False),
        ("[X] a.b\n", "[X] a-b\n", False),
    ],
)
def test_output_is_compared(output: str, printed: str, same: bool) -> None:
    assert bool(re.fullmatch(pattern(output), printed)) == same
