"""Entry point of the `gear` command: its commands, its errors and its exit codes.

Exit codes: 0 done, 1 the command ran and its answer is no, 2 an error, 130 interrupted.

What a user can mend (GearError, OSError, a wrong command line) is one line on standard error,
`gear: [area] what failed: given, allowed, what to do`; `--debug`, anywhere on the command line,
shows its traceback instead. Every other error is a fault of GEAR, of a library or of the user's own
code: its traceback comes before that line, always.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence

import gear
from gear.namesake import refuse_other


class UsageError(ValueError):
    """A command line that is wrong, or a package that the command needs and that is missing."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; `arguments` defaults to the command line's. Returns the exit code.

    A Ctrl-C after the command line's command ends the process at once: what it did is done, and in
    Python's own end it would cut off the clearing up of libraries. A SIGUSR1, by which a batch
    system announces a time limit, changes nothing then.
    """
    if arguments is not None:
        return _main(list(arguments))
    try:
        return _main(sys.argv[1:])
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _main(given: list[str]) -> int:
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    try:
        code = _run(given)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of the output has gone (`gear ... | head`): nothing is left to say.
        _drop_output()
        return 141
    except Exception as error:
        if debug:
            raise
        ours = getattr(gear, "GearError", UsageError)  # not where `gear` is another package
        if not isinstance(error, (UsageError, OSError, ours)):
            if _followed_an_interrupt(error):
                return 130
            traceback.print_exc()
        print(f"gear: {_one_line(error)}", file=sys.stderr)
        return 2


def _run(arguments: list[str]) -> int:
    try:
        refuse_other(gear)
    except ImportError as error:
        raise UsageError(str(error)) from error
    try:
        import click
        import rich  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(
            f"[cli] {error.name} is not installed: the gear command needs the extra [cli]: "
            "pip install 'gear-replay[cli]'"
        ) from error
    from gear.cli import commands

    try:
        code = commands.gear.main(arguments or ["--help"], prog_name="gear", standalone_mode=False)
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        raise UsageError(f"[cli] {error.format_message()}") from error
    return code if isinstance(code, int) else 0


def _drop_output() -> None:
    """What is left of it is written when Python ends, which would say that it cannot be."""
    with contextlib.suppress(OSError):  # not a file of the system
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _followed_an_interrupt(error: BaseException) -> bool:
    """Whether it was raised while a KeyboardInterrupt was on its way: a library's `finally` may
    fail over what a Ctrl-C kept it from doing."""
    before = error.__context__
    while before is not None and not isinstance(before, KeyboardInterrupt):
        before = before.__context__
    return before is not None


def _one_line(error: BaseException) -> str:
    message = " ".join(str(error).split()) or type(error).__name__
    if message.startswith("["):
        return message
    if isinstance(error, OSError):
        return f"[io] {message}"
    area = "import" if isinstance(error, ImportError) else "internal"
    return f"[{area}] {type(error).__name__}: {message}"


if __name__ == "__main__":
    sys.exit(main())
