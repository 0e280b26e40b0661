"""Processes that belong together: signals reach all, and who fails ends the others."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType

GRACE_S = 5.0  # for the others to end by themselves when one has failed
POLL_S = 0.05
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Processes:
    """One of `command` for each environment, each in a session of its own."""

    def __init__(self, command: Sequence[str], environments: Sequence[Mapping[str, str]]) -> None:
        self._command = command
        self._environments = environments
        self._running: list[subprocess.Popen[bytes]] = []
        self._is_told = False  # something, on which each may end
        self._told_to_end = 0

    def follow(self) -> int:
        """Starts them; the exit code of the first that failed, 0 if none did."""
        with self._passing_on():
            try:
                for environment in self._environments:
                    self._running.append(
                        subprocess.Popen(self._command, env=environment, start_new_session=True)
                    )
                    if self._told_to_end:  # while that one began
                        _signal(self._running[-1], signal.SIGTERM)
                        break
                return self._code()
            finally:
                self._end()

    def _code(self) -> int:
        first = 0
        while True:
            codes = [process.poll() for process in self._running]
            first = first or next((code for code in codes if code), 0)
            if first and not self._is_told:
                break
            if all(code is not None for code in codes) or self._told_to_end > 1:
                break
            time.sleep(POLL_S)
        return first if first >= 0 else 128 - first

    @property
    def are_told(self) -> bool:
        """Something by a signal that was not theirs alone: what would come after them has no time,
        or is not wanted."""
        return self._is_told

    @contextlib.contextmanager
    def _passing_on(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def pass_on(number: int, _: FrameType | None) -> None:
            self._is_told = True
            if number != signal.SIGUSR1:
                self._told_to_end += 1
            for process in list(self._running):
                _signal(process, number)

        before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
        try:
            yield
        finally:
            for number, what in before.items():
                signal.signal(number, what)

    def _end(self) -> None:
        """Them, and what they have started in their sessions."""
        deadline = time.monotonic() + GRACE_S
        for process in self._running:
            _signal(process, signal.SIGTERM)
        for process in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        for process in self._running:
            _signal(process, signal.SIGKILL)
            process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # nobody of the session is left
        os.killpg(process.pid, number)
