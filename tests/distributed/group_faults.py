"""What ranks do wrong, or what is done to them, for test_group_faults.py; as group_ranks.py."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

import gear
from gear.distributed import process_life
from gear.distributed.member import Member

SCHEMA = gear.Schema([gear.Column("x", (512,), "float32")])
ROWS = np.zeros((16, 512), np.float32)


def filled(group: gear.Group, tier: str = "host") -> gear.ReplayBuffer:
    buffer = gear.ReplayBuffer(SCHEMA, 128, tier=tier, group=group)
    for _ in range(4):
        write(buffer)
    return buffer


def write(buffer: gear.ReplayBuffer) -> None:
    with buffer.writer() as writer:
        writer.extend(x=ROWS)


def error_of(call: Callable[[], Any]) -> dict[str, Any]:
    """What `call` raised, an interrupt too."""
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt is what is looked for
        return {"kind": type(error).__name__, "error": str(error)}
    return {"kind": "nothing", "error": ""}


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def endless(loader: gear.Loader) -> None:
    while True:
        next(loader)


# ---- who meets ----


def meet() -> dict[str, Any]:
    """A group, after DELAY seconds; then calls for TALK seconds, or until one fails. The process
    stays for another STAY seconds: who comes later finds its store. PARENT: who started it."""
    told = {name: os.environ.pop(name, "0") for name in ("DELAY", "TALK", "STAY", "PARENT")}
    if told["PARENT"] != "0":
        os.getppid = lambda: int(told["PARENT"])
    time.sleep(float(told["DELAY"]))
    found: dict[str, Any] = {"runs": []}

    def talk() -> None:
        group = gear.Group.from_env()
        until = time.monotonic() + float(told["TALK"])
        found["runs"] = group.exchange(os.environ.get("RUN", ""))
        while any(group.exchange(time.monotonic() < until)):
            time.sleep(0.05)

    error = error_of(talk)
    time.sleep(float(told["STAY"]))
    return {**error, **found}


def unconnected() -> dict[str, Any]:
    """Ranks without the packages of WITHOUT."""
    for package in os.environ["WITHOUT"].split(","):
        sys.modules[package] = None  # type: ignore[assignment]
    return error_of(gear.Group.from_env)


# ---- calls that do not go together ----


def other_calls() -> dict[str, Any]:
    group = gear.Group.from_env(timeout_s=60)
    return error_of(group.barrier if group.rank == 0 else lambda: group.exchange([1, 1, 1]))


def other_lengths() -> dict[str, Any]:
    group = gear.Group.from_env(timeout_s=60)
    size = int(os.environ["LENGTH"]) + group.rank
    channel = group.channel()
    all = memoryview(bytearray(size * group.size))
    return error_of(lambda: channel.allgather(memoryview(bytes(size)), all))


def hangs() -> dict[str, Any]:
    """Rank WHO is stopped, and what waits for it is a collective of another library."""
    group = gear.Group.from_env(timeout_s=60)
    who, told = int(os.environ["WHO"]), Path(os.environ["FOLDER"])
    pid = group.exchange(os.getpid())[who]
    (told / f"exchanged {group.rank}").touch()
    for rank in range(group.size):  # else it may be stopped amid the exchange
        wait_for(told / f"exchanged {rank}")
    first = next(rank for rank in range(group.size) if rank != who)
    result = {}
    if group.rank == who:
        result = error_of(group.barrier)
        (told / "woken").touch()
    else:
        os.kill(pid, signal.SIGSTOP)
        result["error"] = str(group.lost(RuntimeError("no answer within 6 s"), 1.0))
        (told / str(group.rank)).touch()
    if group.rank == first:
        for rank in set(range(group.size)) - {who}:
            wait_for(told / str(rank))
        os.kill(pid, signal.SIGCONT)
        wait_for(told / "woken")  # with rank 0 go the words
    return result


# ---- what one rank has to do alone ----


def no_room() -> dict[str, Any]:
    """Rank 0 finds no memory for what the ranks are to share."""
    group = gear.Group.from_env(timeout_s=60)
    if group.rank == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    result = error_of(group.transport)
    if group.rank == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    return result


def closed_channel() -> dict[str, Any]:
    """A channel is closed, another forgotten: the group goes on, and their threads end."""
    group = gear.Group.from_env(timeout_s=60)
    for close in (True, False):
        channel = group.channel()
        channel.barrier()
        if close:
            channel.close()
        del channel
    said = group.exchange(group.rank)
    gc.collect()
    while len([t for t in threading.enumerate() if t.name == "gear-gloo"]) > 1:
        time.sleep(0.01)
    return {"said": said}


# ---- signals and exceptions ----


def interrupted() -> dict[str, Any]:
    """Ctrl-C in a CALL of rank 0, while rank 1 is elsewhere; then rank 1 makes the same call."""
    gone = Path(os.environ["FOLDER"]) / "gone"
    what = os.environ["CALL"]
    group = gear.Group.from_env(timeout_s=60, transport=os.environ["CARRY_BY"])
    buffer = filled(group)
    loader = buffer.loader(8, framework="numpy")
    next(loader)
    calls: dict[str, Callable[[], Any]] = {
        "next": lambda: endless(loader),
        "barrier": group.barrier,
        "exchange": lambda: group.exchange(1),
        "save": lambda: buffer.save(Path(os.environ["FOLDER"]) / "saved"),
        "buffer": lambda: gear.ReplayBuffer(SCHEMA, 64, group=group),
        "loader": lambda: buffer.loader(4),
    }
    group.barrier()
    if group.rank == 0:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
    else:
        wait_for(gone)
    result = error_of(calls[what])
    result["close"] = error_of(lambda: (loader.close(), buffer.close()))["kind"]
    if group.rank == 0:
        gone.touch()
    return result


def dies_connecting() -> dict[str, Any]:
    """Rank WHO is killed when it has taken its place: BEFORE it connects, or while it waits for
    rank 1, which is later. The ranks are as if on hosts of their own where ON_HOST says which."""
    from torch import distributed

    from gear.distributed import member
    from gear.distributed.channels import connect as connecting

    if "ON_HOST" in os.environ:
        member._host = lambda: os.environ["ON_HOST"]

    carried = os.environ["CARRY_BY"]
    where: Any
    where, name = {
        "group": (distributed, "ProcessGroupGloo"),
        "shared_memory": (gear._core, "shared_memory_transport"),
        "libfabric": (connecting, "_first_word"),
    }[carried]
    connect = getattr(where, name)
    dies = os.environ["RANK"] == os.environ["WHO"]

    def die_or_connect(*arguments: Any) -> Any:
        if dies and os.environ["WHEN"] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if dies:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
        elif os.environ["RANK"] == "1" and os.environ["WHEN"] == "while":
            time.sleep(1.0)
        return connect(*arguments)

    setattr(where, name, die_or_connect)
    patience = float(os.environ["PATIENT_S"])
    return error_of(lambda: gear.Group.from_env(timeout_s=patience, transport=carried))


def dies_sharing() -> dict[str, Any]:
    """Rank WHO is killed when it has made its part of a buffer, which the others wait to map."""

    def die(*_: Any, **__: Any) -> None:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)

    if os.environ["RANK"] == os.environ["WHO"]:
        gear._core.Peers = die
    group = gear.Group.from_env(timeout_s=60, transport="shared_memory")
    return error_of(lambda: filled(group, "shared"))


def goes_missing() -> dict[str, Any]:
    """While all draw as fast as they can, rank WHO is killed, or lives and draws no more until all
    others have given up (HOW)."""
    patience = float(os.environ["PATIENT_S"])
    group = gear.Group.from_env(timeout_s=patience, transport=os.environ["CARRY_BY"])
    who, gave_up = int(os.environ["WHO"]), Path(os.environ["FOLDER"])
    buffer = filled(group, "shared")
    loader = buffer.loader(64, framework="numpy")
    for _ in range(5):
        next(loader)
    if group.rank != who:
        result = error_of(lambda: endless(loader))
    elif os.environ["HOW"] == "dies":
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
        endless(loader)
    else:
        result = {}
        for rank in set(range(group.size)) - {who}:
            wait_for(gave_up / str(rank))
    (gave_up / str(group.rank)).touch()
    loader.close()
    buffer.close()
    return result


def learns_late() -> dict[str, Any]:
    """Rank WHO is killed; the rank before it ends of that; the one behind makes the same call only
    then."""
    group = gear.Group.from_env(timeout_s=60, transport="group")
    who, gave_up = int(os.environ["WHO"]), Path(os.environ["FOLDER"]) / "gave up"
    if group.rank == who:
        os.kill(os.getpid(), signal.SIGKILL)
    if group.rank == (who + 1) % 3:
        wait_for(gave_up)
        while who == 0 and not group.members[2].has_ended():
            time.sleep(0.01)
    result = error_of(group.barrier)
    gave_up.touch()
    return result


def waits_for_a_rank() -> dict[str, Any]:
    """Ctrl-C in rank WHO while a group is made, of which rank 2 never comes."""
    if os.environ["RANK"] == os.environ["WHO"]:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 3.0)  # on a busy machine, too, the other has come then
    return error_of(lambda: gear.Group.from_env(timeout_s=60))


def interrupted_elsewhere() -> dict[str, Any]:
    """Ctrl-C in a batch of rank 0, which goes on living, while rank 1 makes a call of the group."""
    group = gear.Group.from_env(timeout_s=60)
    loader = filled(group).loader(8, framework="numpy")
    next(loader)
    if group.rank == 1:
        return error_of(group.barrier)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    result = error_of(lambda: endless(loader))
    time.sleep(1.5)
    return result


def interrupted_close() -> dict[str, Any]:
    """Ctrl-C while rank 0 closes a loader whose batches in flight wait for a busy rank 1."""
    group = gear.Group.from_env(timeout_s=60, transport="group")
    buffer = filled(group)
    # More than 64 KiB, which a thread of its own brings together.
    loader = buffer.loader(40, framework="numpy", prefetch=1024, locality="off")
    until_closed = os.open(os.environ["FIFO"], os.O_RDWR)
    next(loader)
    if group.rank == 1:
        byte = ctypes.create_string_buffer(1)
        ctypes.PyDLL(None).read(until_closed, byte, 1)  # with the interpreter's lock
        return error_of(lambda: endless(loader))
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    result = error_of(loader.close)
    os.write(until_closed, b"!")
    time.sleep(1.5)  # the words go with this process
    return result


def ends_unheard() -> dict[str, Any]:
    """Ctrl-C in rank 0, which then ends, while rank 1 is elsewhere until then."""
    from torch.distributed import HashStore

    group = gear.Group.from_env(timeout_s=60)
    if group.rank == 1:
        while not group.members[0].has_ended():
            time.sleep(0.01)
        return {"size": group.size}
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    result = error_of(lambda: group.exchange(1))
    print("RESULT " + json.dumps(result), flush=True)
    asks = Member.has_ended

    def ask_slowly(member: Member) -> bool:
        """In C++, as every question to a store; Python's end takes a while, too."""
        with contextlib.suppress(RuntimeError):
            HashStore().wait(["nothing"], timedelta(milliseconds=80))
        return asks(member)

    Member.has_ended = ask_slowly
    ctypes.pythonapi.Py_Exit(0)
    return {}


def exits() -> dict[str, Any]:
    """The interpreter ends while a loader is open, whose thread moves bytes by Python."""
    group = gear.Group.from_env(timeout_s=60, transport="group")
    buffer = filled(group)
    loader = buffer.loader(8, framework="numpy", prefetch=4, locality="off")
    for _ in range(4):
        next(loader)
    print("RESULT " + json.dumps({"size": group.size}), flush=True)
    ctypes.pythonapi.Py_Exit(0)
    return {}


def joins() -> dict[str, Any]:
    """Ctrl-C while `gear train` connects its ranks, of which rank 1 is elsewhere."""
    from gear.train.ranks import Ranks

    gone = Path(os.environ["FOLDER"]) / "gone"
    group = gear.Group.from_env(timeout_s=60)
    if group.rank == 0:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
    else:
        # What Ranks exchanges until torch waits for the others: devices, GPUs, backend, address.
        for value in (["", "", {"[gpus]": []}], "", ["", "", None], ["", 0]):
            group.exchange(value)
        wait_for(gone)
    result = error_of(lambda: Ranks(group))
    gone.touch()
    if group.rank == 0:  # with the store
        wait_for(gone.with_name("heard"))
    gone.with_name("heard").touch()
    return result


def parts() -> dict[str, Any]:
    """Ctrl-C while `gear train` closes its ranks, for which rank 1 is late."""
    from gear.train.ranks import Ranks, leaving

    mine = Ranks(gear.Group.from_env(timeout_s=60))
    if mine.rank == 0:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
    else:
        time.sleep(1.0)
    before = atexit._ncallbacks()
    result = error_of(lambda: mine.__exit__(None, None, None))
    leaves = atexit._ncallbacks() > before
    atexit.unregister(leaving._leave)
    if mine.rank == 0:
        time.sleep(1.5)  # with the store, as that would
    return result | {"leaves": leaves}


def exception() -> dict[str, Any]:
    """Rank WHO ends with an exception, in the middle of batches."""
    group = gear.Group.from_env(timeout_s=60, transport=os.environ["CARRY_BY"])
    loader = filled(group).loader(8, framework="numpy")
    for _ in range(3):
        next(loader)
    if group.rank != int(os.environ["WHO"]):
        return error_of(lambda: endless(loader))
    try:
        raise ValueError("mine")
    except ValueError as error:
        sys.last_value = error  # as the interpreter does before it ends
    process_life.end()
    return {}


def no_memory_behind_the_agreement() -> dict[str, Any]:
    """Rank WHO has memory for a batch, as it says to the others, but not for what it draws."""
    group = gear.Group.from_env(timeout_s=60, transport=os.environ["CARRY_BY"])
    buffer = gear.ReplayBuffer(gear.Schema([gear.Column("x", (), "uint8")]), 128, group=group)
    with buffer.writer() as writer:
        writer.extend(x=np.zeros(64, np.uint8))
    with buffer.loader(1 << 16, framework="numpy", prefetch=0) as first:
        next(
            first
        )  # a thread's own data are made at its first use, and glibc aborts without memory
    loader = buffer.loader(1 << 20, framework="numpy", prefetch=0)
    group.barrier()
    if group.rank == int(os.environ["WHO"]):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + (32 << 20)  # a batch has 22 bytes an item
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    found = error_of(lambda: next(loader))
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return found


def stopped_reader() -> dict[str, Any]:
    """Rank 1 is stopped while it may read what rank 0 writes over."""
    group = gear.Group.from_env(timeout_s=2)
    buffer = filled(group, "shared")
    loader = buffer.loader(64, framework="numpy", prefetch=4)
    pids = group.exchange(os.getpid())
    for _ in range(8):
        next(loader)
    if group.rank == 1:
        return error_of(lambda: endless(loader))
    os.kill(pids[1], signal.SIGSTOP)

    def write_on() -> None:
        for _ in range(40):
            write(buffer)

    result = {"writer": error_of(write_on)["kind"], **error_of(lambda: endless(loader))}
    os.kill(pids[1], signal.SIGCONT)
    return result


# ---- rows that nobody hands over ----

PULLED = gear.Schema([gear.Column("n", (), "int64"), gear.Column("row", (64,), "int64")])


def number_steps(buffer: gear.ReplayBuffer, first: int, count: int) -> None:
    """An episode whose rows all say which step they are."""
    numbers = np.arange(first, first + count)
    with buffer.writer() as writer:
        writer.extend(n=numbers, row=numbers[:, None] * 64 + np.arange(64))


def wrong_rows(batch: gear.Batch, window: int) -> int:
    """Rows of a batch that are not whole, or not those behind one another."""
    numbers, rows, mask = batch["n"], batch["row"], batch.masks["row"]
    wanted = (numbers[:, None] + np.arange(window))[:, :, None] * 64 + np.arange(64)
    return int((rows != np.where(mask[:, :, None], wanted, 0)).any(axis=2).sum())


def pulls() -> dict[str, Any]:
    """Rank 0 pulls from rank 1 while that is stopped, then while it evicts as fast as it can."""
    group = gear.Group.from_env(timeout_s=60)
    folder = Path(os.environ["FOLDER"])
    evicts, told = folder / "evicts", folder / "enough"
    outputs = {"n": gear.Step(), "row": gear.Window(0, 3)}
    with gear.ReplayBuffer(
        PULLED, 4096, tier="shared", page_steps=16, publish=True, group=group
    ) as buffer:
        for episode in range(40):
            number_steps(buffer, (group.rank << 40) + episode * 1000, 37)
        pids = group.exchange(os.getpid())
        if group.rank == 1:
            group.barrier()
            episode = 40
            while not told.exists():
                number_steps(buffer, (1 << 40) + episode * 1000, 1 + episode % 90)
                episode += 1
                if episode == 100:  # the buffer is full
                    evicts.touch()
            group.barrier()
            return {"written": episode}
        os.kill(pids[1], signal.SIGSTOP)
        with buffer.loader(
            500, remote="pull", framework="numpy", outputs=outputs, seed=3
        ) as loader:
            batches = [next(loader) for _ in range(40)]
            stats = loader.stats()
            state = Path(f"/proc/{pids[1]}/stat").read_text().rpartition(")")[2].split()[0]
        os.kill(pids[1], signal.SIGCONT)
        result: dict[str, Any] = {
            "state": state,
            "rows": sum(batch.size for batch in batches),
            "wrong": sum(wrong_rows(batch, 3) for batch in batches),
            "from rank 1": int(sum((batch.ids >> 50 & 0xFFF == 1).sum() for batch in batches)),
            "steps": len({int(one) for batch in batches for one in batch.ids}),
            "chance": float(batches[0].probabilities[0]),
            "stats": stats,
        }
        group.barrier()
        loader = buffer.loader(64, remote="pull", framework="numpy", outputs=outputs)
        wrong = drawn = 0
        try:
            while drawn < 200:
                wrong += wrong_rows(next(loader), 3)
                drawn += evicts.exists()
            result["wrong while evicted"] = wrong
        finally:
            told.touch()
        result["evicted"] = loader.stats()
        loader.close()
        group.barrier()
        return result


# ---- a fork of a rank ----


def fork() -> dict[str, Any]:
    """The child's calls are refused, and the group's end in it waits for nothing."""
    group = gear.Group.from_env(timeout_s=60)
    schema = gear.Schema([gear.Column("n", (), "int64")])
    buffer = gear.ReplayBuffer(schema, 256, tier="shared", group=group, publish=True)
    writer = buffer.writer()
    writer.append(n=group.rank)
    read, wrote = os.pipe()
    pid = os.fork()
    if pid == 0:
        calls: list[Callable[[], Any]] = [
            lambda: writer.append(n=7),
            writer.end_episode,
            lambda: buffer.update([0], [1.0]),
            lambda: group.exchange(1),
        ]
        said = [error_of(call) for call in calls]
        del group, buffer, writer, calls
        gc.collect()
        os.write(wrote, json.dumps(said).encode())
        os._exit(0)
    os.close(wrote)
    with os.fdopen(read) as pipe:
        said = json.loads(pipe.read())
    os.waitpid(pid, 0)
    group.barrier()
    with buffer.loader(64, remote="pull", framework="numpy") as loader:
        drawn = sorted({int(n) for n in next(loader)["n"]})
    return {"said": said, "drawn": drawn, "parent": group.exchange(group.rank)}


def late_start() -> dict[str, Any]:
    if os.environ["RANK"] == "1":
        time.sleep(1.5)
    return {"size": gear.Group.from_env(timeout_s=60).size}
