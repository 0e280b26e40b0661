"""The shells themselves: what other tests take from shells.py is what a user gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from distribution.shells import (
    EVERY_SHELL,
    MODULE_TOOLS,
    Shell,
    every_shell_without_modules,
    read_snapshot,
    shell_parameter,
)

ODD = """a "b" 'c' $d !e `f` \\g &h; i:j"""


@pytest.mark.parametrize(
    "shell", [shell_parameter(name, tool) for tool in MODULE_TOOLS for name in EVERY_SHELL]
)
def test_module_loads_and_unloads(shell: Shell, tmp_path: Path) -> None:
    tree = tmp_path / "tree"  # Lmod 8.6 reads no Tcl file whose path holds a space
    tree.mkdir()
    (tree / "toy").write_text("#%Module\nsetenv TOY 1\nprepend-path PATH /toy\n")
    done = shell.run(
        f"module use {shell.quote(tree)}",
        shell.snapshot(tmp_path / "before"),
        "module load toy",
        shell.snapshot(tmp_path / "loaded"),
        "module unload toy",
        shell.snapshot(tmp_path / "after"),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    before, loaded, after = (read_snapshot(tmp_path / n) for n in ("before", "loaded", "after"))
    assert "TOY" not in before
    assert loaded["TOY"] == "1"
    assert loaded["PATH"] == "/toy:" + before["PATH"]
    assert "TOY" not in after
    assert after["PATH"] == before["PATH"]


@every_shell_without_modules
def test_words_arrive_as_they_are(shell: Shell, tmp_path: Path) -> None:
    done = shell.run(
        shell.export("ODD", ODD), shell.export("GONE", "x"), shell.unset("GONE"),
        shell.snapshot(tmp_path / "out"), "/bin/false",
        shell.echo_status(),
    )  # fmt: skip
    found = read_snapshot(tmp_path / "out")
    assert found["ODD"] == ODD
    assert "GONE" not in found
    assert done.stdout == "status=1\n"


@pytest.mark.parametrize("shell", [Shell("bash", None)])
def test_nothing_of_the_developer_gets_in(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    shell.run(shell.snapshot(tmp_path / "out"))
    assert set(read_snapshot(tmp_path / "out")) == {"HOME", "PATH", "LC_ALL"}
