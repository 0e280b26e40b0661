"""A package is asked in a process of its own: noise, errors, crashes and silence stay there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gear.cli import probe


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The source of a DeepSpeed that hides what is installed."""
    folder = tmp_path / "deepspeed"
    folder.mkdir()
    (folder / "git_version_info.py").write_text(
        "installed_ops = {'b': True, 'a': True, 'c': False}\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return folder / "__init__.py"


def test_answer_and_noise_are_kept_apart(package: Path) -> None:
    package.write_text(
        "import os, sys\nprint('[INFO] hello')\nos.write(1, b'from C')\n"
        "print('warning', file=sys.stderr)\n__version__ = '0.19.8'\n"
    )
    answer = probe.ask(["deepspeed"])["deepspeed"]
    assert answer == {"version": "0.19.8", "operations": ["a", "b"]}


@pytest.mark.parametrize(
    ("said", "library"),
    [
        ("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev\0", "Open MPI v4.1.4"),
        (
            "MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7\nMPICH CC:\tgcc",
            "MPICH Version: 4.0.2",
        ),
    ],
)
def test_an_mpi_is_one_short_name(said: str, library: str) -> None:
    assert probe.mpi_library(said) == library


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (
            "import nothing_of_that_name",
            "ModuleNotFoundError: No module named 'nothing_of_that_name'",
        ),
        (
            "raise ImportError('libmpi.so.40: cannot open')",
            "ImportError: libmpi.so.40: cannot open",
        ),
        ("import os; os.abort()", "it ended by signal 6"),
        ("import os; os._exit(3)", "it ended with exit code 3"),
    ],
)
def test_why_there_is_no_answer(source: str, error: str, package: Path) -> None:
    package.write_text(source)
    assert probe.ask(["deepspeed"]) == {"deepspeed": {"error": error}}


def test_silence_ends(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package.write_text("import time; time.sleep(600)")
    monkeypatch.setattr(probe, "TIMEOUT_S", 0.2)
    error = probe.ask(["deepspeed"])["deepspeed"]["error"]
    assert error == "it did not answer within 0.2 s"


def test_the_working_directory_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mpi4py.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)
    assert "version" in probe.ask(["mpi4py"])["mpi4py"]
