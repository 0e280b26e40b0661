"""Where a rank runs, and whether it still does."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROLES = ("train", "store")  # who draws, and who only holds steps


@dataclass(frozen=True)
class Member:
    """One rank of a group.

    Attributes:
        rank: in the group.
        node: two ranks with equal nodes map each other's memory: ``GEAR_NODE``, else `host`.
        host: the running system (boot id), its ``/dev/shm`` and its process numbers.
        hostname: for messages.
        pid, start_time: the process; clock ticks from boot (field 22 of ``/proc/<pid>/stat``).
        role: one of ROLES.
    """

    rank: int
    node: str
    host: str
    hostname: str
    pid: int
    start_time: int
    role: str = "train"

    @staticmethod
    def here(rank: int, node: str | None = None, role: str = "train") -> Member:
        """This process as a rank; `node`: in place of what the environment and the host say."""
        host = _host()
        pid = os.getpid()
        stat = _process_stat(pid)
        return Member(
            rank=rank,
            node=node or os.environ.get("GEAR_NODE") or host,
            host=host,
            hostname=socket.gethostname(),
            pid=pid,
            start_time=0 if stat is None else stat[1],
            role=role,
        )

    @staticmethod
    def from_json(value: dict[str, Any]) -> Member:
        return Member(**value)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def has_ended(self) -> bool:
        """Whether the process has exited; a zombie has. For members of this process's host."""
        stat = _process_stat(self.pid)
        if stat is not None:
            state, start_time = stat
            return state in "ZXx" or start_time != self.start_time
        try:  # /proc may hide the processes of others (hidepid)
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.pid} on {self.hostname})"


def _host() -> str:
    # Containers of one system map each other's shared memory where /dev/shm is one file system, and
    # see each other's processes where the pid namespace is one.
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(str(os.stat("/dev/shm").st_dev))
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    except OSError:
        pass
    return "/".join(parts)


def _process_stat(pid: int) -> tuple[str, int] | None:
    """(state, start time) of a process, or None where /proc does not show it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # Field 2 is the command in parentheses and may hold spaces and parentheses itself.
    fields = text[text.rfind(")") + 2 :].split()
    return fields[0], int(fields[19])
