"""Starts the ranks, shows what rank 0 writes, and says which rank failed first."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from gear.cli.launch.launchers import choose
from gear.errors import InvalidArgument

POLL_S = 0.05
LAST_LINES = 5


def run(
    size: int,
    backend: str | None,
    launcher: str | None,
    options: str,
    logs: str | None,
    is_module: bool,
    words: list[str],
) -> int:
    """Returns the exit code of the rank that failed first, else the launcher's.

    Raises InvalidArgument if there is no such script, or no launcher for the backend.
    """
    if not is_module and not Path(words[0]).is_file():
        raise InvalidArgument(
            f"[run] SCRIPT {words[0]}: there is no such file: give a Python program, or -m MODULE"
        )
    chosen = choose(size, backend, launcher, shlex.split(options))
    folder = _made(Path(logs) if logs else Path("outputs") / time.strftime("run-%Y-%m-%d_%H-%M-%S"))
    python = [sys.executable, "-u", *(["-m"] if is_module else [])]
    line = chosen.line(folder, [*python, *words])
    print(f"gear run: {chosen.reason}", file=sys.stderr)
    print(f"gear run: {shlex.join(line)}", file=sys.stderr)
    print(f"gear run: what ranks write is in {folder}/rank-N.log; rank 0:", file=sys.stderr)
    code = _follow(line, folder / "rank-0.log")
    return _say_who_failed(folder, code)


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        if not folder.is_dir() or any(folder.iterdir()):
            raise InvalidArgument(
                f"[run] --logs {folder} is there already: give a new or an empty folder"
            ) from None
    return folder.resolve()


def _follow(line: list[str], log: Path) -> int:
    """The launcher's exit code; what rank 0 writes is shown meanwhile. Ctrl-C and SIGTERM reach the
    launcher, which ends the ranks."""
    with subprocess.Popen(line, stdin=subprocess.DEVNULL) as process:

        def end(number: int, frame: FrameType | None) -> None:
            process.terminate()

        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        shown = None
        try:
            while True:
                ended = process.poll() is not None
                if shown is None and log.exists():
                    shown = log.open("rb")
                _show(shown)
                if ended:
                    break
                time.sleep(POLL_S)
        finally:
            for number, what in before.items():
                signal.signal(number, what)
            if shown is not None:
                shown.close()
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _show(log: BinaryIO | None) -> None:
    written = log.read() if log is not None else b""
    if written:
        sys.stdout.write(written.decode(errors="replace"))
        sys.stdout.flush()


def _say_who_failed(folder: Path, code: int) -> int:
    """Launchers differ in their exit codes: torchrun's is its own, srun's the largest."""
    ended = sorted(folder.glob("rank-*.code"), key=lambda path: path.stat().st_mtime_ns)
    for path in ended:
        own = int(path.read_text())
        if own:
            log = path.with_suffix(".log")
            last = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            rank = path.stem.removeprefix("rank-")
            print(f"gear run: rank {rank} ended with exit code {own}: {log}", file=sys.stderr)
            for line in last:
                print(f"    {line}", file=sys.stderr)
            return own
    if code:
        print(f"gear run: the launcher ended with exit code {code}", file=sys.stderr)
    return code
