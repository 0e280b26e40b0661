"""A process that warm_server.py forks, as if this were it: `warm_client.py SOCKET WORDS...`.

The words are those of Python: a file, or -m and a module, and what they are given. Folder,
environment and streams are this process's; signals are passed on; it ends as that one does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from types import FrameType

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def main() -> None:
    path, *words = sys.argv[1:]
    # One that comes before there is a process to pass it on to waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [b"\0"], [0, 1, 2])
        asked = {"folder": os.getcwd(), "environment": dict(os.environ), "words": words}
        server.sendall(json.dumps(asked).encode() + b"\n")
        told = server.makefile()
        forked = int(told.readline())

        def pass_on(number: int, _: FrameType | None) -> None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.killpg(forked, number)

        for number in PASSED_ON:
            signal.signal(number, pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        code = int(told.readline())
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_DFL)
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
