"""`gear train` hands everything on to the trainer."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gear.cli import app

pytest.importorskip("hydra")
from gear.train import app as trainer


@pytest.mark.parametrize("code", [0, 130])
def test_arguments_and_exit_code_pass_through(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def train(overrides: list[str]) -> int:
        seen.append(overrides)
        return code

    monkeypatch.setattr(trainer, "main", train)
    given = ["env=cartpole", "--cfg", "job", "-m", "seed=0,1", "--help", "+x.y=[1,2]"]
    assert app.main(["train", *given]) == code
    assert app.main(["--local_rank=1", "train", *given]) == code  # by the launcher of DeepSpeed
    assert seen == [given, given]


def test_bad_override_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["train", "env=atlantis"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("gear: [")
    assert error.count("\n") == 1
    assert "atlantis" in error


def test_a_reader_that_has_gone_is_no_fault() -> None:
    """As of `gear train --help | head`."""
    program = [sys.executable, "-m", "gear.cli.app", "train", "--help"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() != 0
