"""Forks processes from one that has imported torch: `warm_server.py LISTENING IMPORTED...`.

LISTENING is the descriptor of a socket at which warm_client.py asks. A process that imports torch
itself spends ten seconds of CPU time on that, and next to none on what most tests are about. GEAR
is imported by each process. All of them end when this one's standard input does.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import runpy
import selectors
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Asked:
    """What a client wants to be run; the descriptors are its standard streams."""

    folder: str
    environment: dict[str, str]
    words: list[str]
    streams: list[int]


@dataclass(frozen=True)
class Forked:
    """A process, and the client that it is for; the descriptor is readable once it has ended."""

    pid: int
    has_ended: int
    client: socket.socket


def asked_by(client: socket.socket) -> Asked | None:
    """None: it has ended meanwhile."""
    _, streams, _, _ = socket.recv_fds(client, 1, 3)
    with client.makefile() as told:
        line = told.readline()
    return Asked(**json.loads(line), streams=streams) if line.endswith("\n") else None


def tell(client: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # it has ended meanwhile
        client.sendall(f"{number}\n".encode())


def serve(listening: socket.socket) -> Asked | None:
    """Returns None at the end, and in every process that is forked what it is to run."""
    ready = selectors.DefaultSelector()
    ready.register(listening, selectors.EVENT_READ)
    ready.register(0, selectors.EVENT_READ)
    running: set[Forked] = set()
    while True:
        for key, _ in ready.select():
            if key.fileobj == 0:
                for forked in running:
                    kill(forked)
                return None
            if key.fileobj is listening:
                client, _ = listening.accept()
                asked = asked_by(client)
                if asked is None:
                    client.close()
                    continue
                pid = os.fork()
                if pid == 0:
                    os.setpgid(0, 0)
                    for each in (listening, client, *(one.client for one in running)):
                        each.close()
                    return asked
                for stream in asked.streams:
                    os.close(stream)
                running.add(begin(pid, client, ready))
            elif key.data in running and key.fileobj == key.data.has_ended:
                end(key.data, ready)
                running.remove(key.data)
            elif key.data in running:  # its client is gone
                kill(key.data)


def kill(forked: Forked) -> None:
    """With what it has started."""
    with contextlib.suppress(ProcessLookupError):  # it has ended, and nobody has asked how
        os.killpg(forked.pid, signal.SIGKILL)


def begin(pid: int, client: socket.socket, ready: selectors.BaseSelector) -> Forked:
    with contextlib.suppress(PermissionError):  # it has done so itself, and become another program
        os.setpgid(pid, pid)  # a signal reaches what it starts, too
    forked = Forked(pid, os.pidfd_open(pid), client)
    for each in (forked.has_ended, client):
        ready.register(each, selectors.EVENT_READ, forked)
    tell(client, pid)
    return forked


def end(forked: Forked, ready: selectors.BaseSelector) -> None:
    _, status = os.waitpid(forked.pid, 0)
    for each in (forked.has_ended, forked.client):
        ready.unregister(each)
    os.close(forked.has_ended)
    with forked.client:
        tell(forked.client, os.waitstatus_to_exitcode(status))


def become(asked: Asked) -> None:
    """This process is as if Python had begun with those words."""
    os.chdir(asked.folder)
    os.environ.clear()
    os.environ.update(asked.environment)
    for number, stream in enumerate(asked.streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.path[1:1] = filter(None, asked.environment.get("PYTHONPATH", "").split(":"))
    customise()
    random.seed()
    if "numpy" in sys.modules:  # whose state all would have from their parent
        sys.modules["numpy"].random.seed()
    if asked.words[0] == "-m":
        sys.argv, sys.path[0] = asked.words[1:], ""
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = asked.words, str(Path(asked.words[0]).resolve().parent)
        runpy.run_path(sys.argv[0], run_name="__main__")


def customise() -> None:
    """As `site` does when Python begins, and torch when it is imported: that has happened."""
    sys.modules.pop("sitecustomize", None)
    with contextlib.suppress(ModuleNotFoundError):
        import sitecustomize  # noqa: F401
    import torch.distributed as dist

    dist.set_debug_level_from_env()
    if "GEAR_EMU" in os.environ:
        from gear.emu.door import open_door
        from gear.emu.install import is_hooked

        if is_hooked():
            open_door(sys.modules["torch.distributed.distributed_c10d"])


def main() -> None:
    number, *imported = sys.argv[1:]
    for name in imported:
        with contextlib.suppress(ModuleNotFoundError):  # its tests are skipped
            __import__(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a thread that no fork would have"
    gc.freeze()  # what is imported no collection looks at, which would have it copied
    asked = serve(socket.socket(fileno=int(number)))
    if asked is not None:
        become(asked)


if __name__ == "__main__":
    main()
