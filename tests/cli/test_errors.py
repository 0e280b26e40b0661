"""Errors of the gear command: one line on standard error, exit code 2, tracebacks with --debug."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys

import pytest

import gear
from gear.cli import app


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    return lines[0]


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["juggle"]) == 2
    assert "juggle" in (line := one_line(capsys))
    assert line.startswith("gear: [cli] ")


def test_unknown_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["check", "--yaml"]) == 2
    assert one_line(capsys).startswith("gear: [cli] ")


def test_missing_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["data", "inspect"]) == 2
    assert "PATH" in one_line(capsys)


@pytest.mark.parametrize("package", ["click", "rich"])
def test_without_the_extra_cli(
    package: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert app.main(["check"]) == 2
    line = one_line(capsys)
    assert line.startswith(f"gear: [cli] {package} is not installed")
    assert "pip install 'gear-replay[cli]'" in line


def test_train_without_the_extra_train(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "hydra" else find_spec(name)
    )
    assert app.main(["train"]) == 2
    line = one_line(capsys)
    assert line.startswith("gear: [train] not installed: hydra-core")
    assert "pip install 'gear-replay[train]'" in line


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exception, match="juggle"):
        app.main(["--debug", "juggle"])
    with pytest.raises(Exception, match="juggle"):
        app.main(["juggle", "--debug"])


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ZeroDivisionError("by zero"), "gear: [internal] ZeroDivisionError: by zero"),
        (ImportError("libx.so: not found"), "gear: [import] ImportError: libx.so: not found"),
        (ValueError("[user] looks like ours"), "gear: [user] looks like ours"),
        (KeyError("x"), "gear: [internal] KeyError: 'x'"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_the_user_cannot_mend_comes_with_its_traceback(
    error: Exception,
    line: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def crash(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(app, "_run", crash)
    assert app.main(["check"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "in crash" in "".join(lines)
    assert lines[-1] == line


@pytest.mark.parametrize(
    "error",
    [
        gear.InvalidArgument("[buffer] capacity=0: give 1 or more"),
        gear.OutOfMemory("[memory] 3 TB asked for: make it smaller"),
        FileNotFoundError(2, "No such file", "/nowhere"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_the_user_can_mend_is_one_line(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(app, "_run", refuse)
    assert app.main(["check"]) == 2
    assert one_line(capsys).startswith("gear: [")


def test_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "_run", interrupted)
    assert app.main(["check"]) == 130


def test_an_interrupt_stays_one_where_a_library_fails_over_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: list[str]) -> int:
        try:
            raise KeyboardInterrupt
        finally:
            raise UnboundLocalError("f")  # as Hydra's, which closes the file that it was to open

    monkeypatch.setattr(app, "_run", run)
    assert app.main(["check"]) == 130
    assert "internal" not in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    import gear

    assert app.main(["--version"]) == 0
    assert capsys.readouterr().out == f"gear {gear.__version__}\n"
    for arguments in (["--help"], []):
        assert app.main(arguments) == 0
        shown = capsys.readouterr().out
        assert all(command in shown for command in ("check", "data", "train", "--debug"))


def test_group_without_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["data"]) == 2
    assert one_line(capsys).startswith("gear: [cli] Missing command")


def test_ctrl_c_after_the_command_ends_the_process_at_once() -> None:
    """In Python's own end it would cut off what libraries do there."""
    program = (
        "import os, signal, sys; from gear.cli.app import main; sys.argv = ['gear', '--help']; "
        "main(); os.kill(os.getpid(), signal.SIGINT); print('still there')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == -signal.SIGINT
    assert "still there" not in done.stdout
    assert done.stderr == ""


def test_the_notice_of_a_time_limit_after_the_command_ends_nothing() -> None:
    """A job whose run is whole has not failed because its time was nearly up, too."""
    program = (
        "import os, signal, sys; from gear.cli.app import main; sys.argv = ['gear', '--help']; "
        "code = main(); os.kill(os.getpid(), signal.SIGUSR1); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_entry_point() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gear.cli.app", "data", "inspect", "/nowhere"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("gear: [")
    assert "/nowhere" in done.stderr
