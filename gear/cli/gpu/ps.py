"""`gear gpu ps`: who runs what on the GPUs of this machine."""

from __future__ import annotations

import getpass
import json
import pwd
import socket
import time
from pathlib import Path
from typing import Any

from gear.cli.gpu import nvml

PROC = Path("/proc")
WATCH_EVERY_S = 2.0
HIDDEN = "(hidden)"  # a process of another container, or of the host


def run(user: str | None, watch: bool, as_json: bool) -> int:
    """user: only processes of this user; "": of whoever asks; None: of all.

    watch: again every two seconds, until Ctrl-C.
    """
    wanted = getpass.getuser() if user == "" else user
    while True:
        found = [_owned(process) for process in nvml.list_processes()]
        found = [process for process in found if wanted in (None, process["user"])]
        if as_json:
            print(json.dumps(found, indent=None if watch else 2), flush=True)
        else:
            _print_table(found, wanted, clear=watch)
        if not watch:
            return 0
        time.sleep(WATCH_EVERY_S)


def _owned(process: dict[str, Any]) -> dict[str, Any]:
    """With its user and command."""
    folder = PROC / str(process["pid"])
    user, command = HIDDEN, HIDDEN
    try:
        uid = folder.stat().st_uid
        command = (folder / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
        user = str(uid)
        user = pwd.getpwuid(uid).pw_name
    except (OSError, KeyError):
        pass  # it has ended, is not of this container, or its user has no name here
    return {**process, "user": user, "command": command}


def _print_table(processes: list[dict[str, Any]], user: str | None, *, clear: bool) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if clear and console.is_terminal:
        console.clear()
    where = f"GPUs of {socket.gethostname()}"
    if not processes:
        console.print(f"no process{f' of {user}' if user else ''} runs on the {where}")
        return
    table = Table(box=box.SIMPLE_HEAD, title=f"{where}, {time.strftime('%H:%M:%S')}")
    for heading in ("GPU", "process", "user", "memory", "busy"):
        table.add_column(heading, no_wrap=True)
    table.add_column("command")  # takes what room is left
    for each in processes:
        memory = "?" if each["memory_bytes"] is None else f"{each['memory_bytes'] / 2**30:.2f} GiB"
        busy = "-" if each["utilisation"] is None else f"{each['utilisation']} %"
        command = Text(each["command"], no_wrap=True, overflow="ellipsis")
        table.add_row(str(each["gpu"]), str(each["pid"]), each["user"], memory, busy, command)
    console.print(table)
