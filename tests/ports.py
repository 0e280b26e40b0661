"""Ports on which ranks meet: each is given out once, whatever runs beside this process."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

# Below those that the system gives to connections that ask for none: nobody else takes these.
PORTS = range(10_000, 20_000)
_held: list[IO[bytes]] = []  # a lock a port, until this process ends


def fresh_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and that no other process of tests is given."""
    folder = Path(tempfile.gettempdir()) / f"gear-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for port in random.Random().sample(PORTS, len(PORTS)):
        lock = (folder / str(port)).open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            continue
        _held.append(lock)
        return port
    raise RuntimeError(f"none of the ports {PORTS[0]} to {PORTS[-1]} is free")
