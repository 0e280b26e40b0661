"""modulefiles/render.py: what it writes is what was given, and bad input is refused in words."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from distribution.module_tree import RENDER, ModuleTree
from distribution.shells import Shell, every_tool, read_snapshot

VALUES = [
    "VERSION=1",
    "KIND=cpu",
    "HOME=/opt/gear",
    "BUILD=/opt/gear",
    "PYTHON=/usr/bin/python3",
    "PYTHON_VERSION=3.11",
    "MODULES=",
    "PROFILES=",
]
ODD = r"""[exec touch it] {a} }{ $env(HOME) "; \n \\ --comment]] #!b"""


@every_tool
def test_any_printable_value_arrives_as_it_is(shell: Shell, tmp_path: Path) -> None:
    tree = ModuleTree(tmp_path)
    tree.install(presets={"ODD": ODD})
    shell.run(f"module use {tree.folder}", "module load gear", shell.snapshot(tmp_path / "loaded"))
    assert read_snapshot(tmp_path / "loaded")["ODD"] == ODD


@pytest.mark.parametrize("language", ["tcl", "lua"])
def test_same_values_same_bytes(language: str, tmp_path: Path) -> None:
    texts = []
    for presets in (["ENV.A=1", "ENV.B=2"], ["ENV.B=2", "ENV.A=1"]):
        done = run(language, tmp_path / "file", *VALUES, *presets)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        texts.append((tmp_path / "file").read_bytes())
    assert texts[0] == texts[1]
    assert b"@" not in texts[0]


@pytest.mark.parametrize("language", ["tcl", "lua"])
def test_what_is_loaded_stays_in_one_build(language: str, tmp_path: Path) -> None:
    """GEAR_HOME is a link that an update moves; PATH leads where it led."""
    values = [value for value in VALUES if not value.startswith("BUILD=")]
    run(language, tmp_path / "file", *values, "BUILD=/opt/gear/.builds/1-cpu-abc")
    lines = (tmp_path / "file").read_text().splitlines()
    (path,) = (line for line in lines if line.startswith("prepend"))
    assert '"/opt/gear/.builds/1-cpu-abc/bin"' in path


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (VALUES[1:], "values are missing: VERSION"),
        ([*VALUES, "COLOUR=red"], "given 'COLOUR=red', allowed NAME=VALUE"),
        ([*VALUES, "ENV.1A=x"], "given 'ENV.1A=x', allowed NAME=VALUE"),
        ([*VALUES, "VERSION"], "given 'VERSION', allowed NAME=VALUE"),
        ([*VALUES, "ENV.A=two\nlines"], r"given 'ENV.A=two\nlines', allowed printable characters"),
    ],
)
def test_bad_values(values: list[str], words: str, tmp_path: Path) -> None:
    done = run("tcl", tmp_path / "file", *values)
    assert done.returncode == 2
    assert done.stderr.startswith("[modulefiles] bad value: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "file").exists()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    done = run("lua", tmp_path / "no" / "such" / "folder", *VALUES)
    assert done.returncode == 1
    assert done.stderr.startswith("[modulefiles] the module file was not written: ")
    assert done.stderr.count("\n") == 1


def run(language: str, output: Path, *values: str) -> subprocess.CompletedProcess[str]:
    command = [*RENDER, language, "--output", str(output), *values]
    return subprocess.run(command, capture_output=True, text=True, check=False)
