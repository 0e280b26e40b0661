"""Entry point of the `gear` command: its commands, its errors and its exit codes.

Exit codes: 0 done, 1 the command ran and its answer is no, 2 an error (one line on standard error:
`gear: [area] what failed: given, allowed, what to do`), 130 interrupted. `--debug`, anywhere on the
command line, shows the traceback of an error instead.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import gear
from gear.namesake import refuse_other


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; `arguments` defaults to the command line's. Returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    try:
        return _run(given)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of the output has gone (`gear ... | head`): nothing is left to say.
        sys.stdout = None
        return 141
    except Exception as error:
        if debug:
            raise
        print(f"gear: {_one_line(error)}", file=sys.stderr)
        return 2


def _run(arguments: list[str]) -> int:
    refuse_other(gear)
    try:
        import click
        import rich  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"[cli] {error.name} is not installed: the gear command needs the extra [cli]: "
            "pip install 'gear-replay[cli]'"
        ) from error
    from gear.cli import commands

    try:
        code = commands.gear.main(arguments or ["--help"], prog_name="gear", standalone_mode=False)
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        raise ValueError(f"[cli] {error.format_message()}") from error
    return code if isinstance(code, int) else 0


def _one_line(error: BaseException) -> str:
    message = " ".join(str(error).split()) or type(error).__name__
    if message.startswith("["):
        return message
    area = "import" if isinstance(error, ImportError) else "internal"
    return f"[{area}] {message} ({type(error).__name__}; --debug shows where)"


if __name__ == "__main__":
    sys.exit(main())
