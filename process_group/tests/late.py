"""One rank of two, of which one does not come to what both do together: `late.py`, started by
mpirun. Writes what each case raised, or its result, to FOLDER/RANK.json."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch.distributed as dist

sys.path.append(str(Path(__file__).parents[2]))

import gear_mpi
from gear_mpi import place
from gear_mpi.library import load
from process_group.tests.rehearsal import rehearse

FOLDER = Path(os.environ["FOLDER"])
LIMIT = timedelta(seconds=0.5)


def raised(call: Callable[[], Any]) -> str:
    try:
        return str(call())
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}".splitlines()[0]


def interrupted(call: Callable[[], Any]) -> str:
    """By Ctrl-C, after a while."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    return raised(call)


def wait_for(name: str) -> None:
    limit = time.monotonic() + 60
    while not (FOLDER / name).exists():
        assert time.monotonic() < limit, f"nobody has written {name}"
        time.sleep(0.02)


def no_store(*_: Any) -> NoReturn:
    raise RuntimeError('no "port"\nis free')


def backend_alone(timeout_s: float) -> Any:
    options = load().Options(
        timeout_s=timeout_s, segment_bytes=1 << 20, takes_gpus=False, shares_memory=False
    )
    return load().Backend(1, [0, 1], f"alone for {timeout_s}", options)


def before_the_other_comes() -> dict[str, str]:
    said = {
        "environment": raised(lambda: gear_mpi.set_environment(LIMIT)),
        "interrupted environment": interrupted(gear_mpi.set_environment),
        "group": raised(lambda: dist.init_process_group("gear_mpi", timeout=LIMIT)),
        "interrupted group": interrupted(lambda: dist.init_process_group("gear_mpi")),
        "local rank": raised(lambda: load().local_rank(0.5)),
    }
    (FOLDER / "tried").touch()
    return said


def without_the_other(group: Any) -> dict[str, str]:
    said = {
        "backend": raised(lambda: backend_alone(0.5)),
        "interrupted backend": interrupted(lambda: backend_alone(60)),
        "memory": raised(lambda: rehearse(group, shares_memory=True)),
        "after memory": raised(lambda: dist.barrier(group=group)),
        "interrupted operation": interrupted(dist.barrier),
    }
    (FOLDER / "alone").touch()
    return said


def forget_variables() -> None:
    for name in (*place.VARIABLES, "LOCAL_RANK"):
        os.environ.pop(name, None)


def main() -> None:
    rank, _ = load().world()
    said = {}
    if rank == 1:
        said = before_the_other_comes()
    else:
        wait_for("tried")
    gear_mpi.set_environment()
    said["variables"] = f"{os.environ['RANK']} {os.environ['LOCAL_RANK']}"
    forget_variables()
    if rank == 0:
        served, place.TCPStore = place.TCPStore, no_store
    said["no store"] = raised(lambda: dist.init_process_group("gear_mpi"))
    if rank == 0:
        place.TCPStore = served
        said["other call"] = raised(gear_mpi.set_environment)
        forget_variables()
    else:
        said["other call"] = raised(lambda: dist.init_process_group("gear_mpi"))
        load().local_rank(60)  # what is left of rank 0's call
    # torch names groups by how often a rank has tried to make one.
    dist.distributed_c10d._world.group_count = 0
    dist.init_process_group("gear_mpi")
    group = dist.new_group(backend="gear_mpi", timeout=LIMIT)
    dist.barrier(group=group)
    if rank == 1:
        said |= without_the_other(group)
    else:
        wait_for("alone")
    (FOLDER / f"{rank}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main()
