"""Python processes that a server forks, which has imported what takes seconds to import.

A process of `gear train` spends eight seconds of CPU time on importing torch and its friends, most
tests next to none on what they are about. GEAR itself is imported by each process.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

IMPORTED = ("torch", "torch._dynamo", "torch.distributed.fsdp", "hydra", "matplotlib.figure")
POLL_S = 0.02


spent_s = 0.0  # CPU time of all processes that have ended, which the system counts as the server's


class Warm:
    """As subprocess.Popen of `python ARGUMENTS...`, with text on both streams: a file, or -m and a
    module, and what they are given.

    Args:
        python: of an installation, in place of that of the tests.
        imported: modules that its server has imported besides IMPORTED.

    Attributes:
        pid: of the process, which is no child of this one.
        returncode: None while it runs; negative where a signal ended it.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        env: Mapping[str, str],
        python: str = sys.executable,
        imported: tuple[str, ...] = (),
    ) -> None:
        self._server = _server(python, imported)
        self.returncode: int | None = None
        self._told: tuple[str, str] | None = None
        self._streams = [tempfile.TemporaryFile("w+") for _ in range(2)]  # noqa: SIM115
        self.pid = self._server.ask(
            start=[str(cwd), dict(env), list(arguments)],
            streams=[f"/proc/{os.getpid()}/fd/{stream.fileno()}" for stream in self._streams],
        )

    def poll(self) -> int | None:
        global spent_s
        if self.returncode is None:
            self.returncode, seconds = self._server.ask(poll=self.pid)
            spent_s += seconds
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = time.monotonic() + (timeout or float("inf"))
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(f"pid {self.pid}", timeout or 0, *self._written())
            time.sleep(POLL_S)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        if self._told is None:
            self._told = self._written()
            for stream in self._streams:
                stream.close()
        return self._told

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _written(self) -> tuple[str, str]:
        for stream in self._streams:
            stream.seek(0)
        return self._streams[0].read(), self._streams[1].read()


class Server:
    """The process that forks; it ends with this one."""

    def __init__(self, python: str, imported: tuple[str, ...]) -> None:
        # One thread each, read when torch is imported: processes share the cores that tests have.
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [python, __file__, *imported],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        atexit.register(self._end)

    def _end(self) -> None:
        self._process.communicate()

    def ask(self, **request: Any) -> Any:
        asked, told = self._process.stdin, self._process.stdout
        assert asked is not None
        assert told is not None
        asked.write(json.dumps(request) + "\n")
        asked.flush()
        return json.loads(told.readline())


@functools.cache
def _server(python: str, imported: tuple[str, ...]) -> Server:
    return Server(python, imported)


def _serve(asked: IO[str], told: IO[str]) -> list[str] | None:
    """Returns None at the end, and in every process that is forked what it is to run."""
    for line in asked:
        request = json.loads(line)
        if "poll" in request:
            pid, status, used = os.wait4(request["poll"], os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if pid else None
            answer: object = (code, used.ru_utime + used.ru_stime if pid else 0)
        else:
            answer = os.fork()
            if answer == 0:
                return _become(*request["start"], request["streams"])
        told.write(json.dumps(answer) + "\n")
        told.flush()
    return None


def _become(
    folder: str, environment: dict[str, str], arguments: list[str], streams: list[str]
) -> list[str]:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(":"))
    for descriptor, path in zip((0, 1, 2), (os.devnull, *streams), strict=True):
        opened = os.open(path, os.O_RDWR | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    return arguments


def _main() -> None:
    # What is asked comes by descriptors of their own: 0 and 1 are those of the processes, and what
    # is imported may print.
    asked, told = (os.fdopen(os.dup(descriptor), mode) for descriptor, mode in ((0, "r"), (1, "w")))
    os.dup2(2, 1)
    for name in (*IMPORTED, *sys.argv[1:]):
        __import__(name)
    sys.stdout.flush()
    arguments = _serve(asked, told)
    if arguments is None:
        return
    asked.close()
    os.close(told.fileno())
    if arguments[0] == "-m":
        sys.argv, sys.path[0] = arguments[1:], ""
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = arguments, str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    _main()
