"""What Python runs in the thread that draws with other ranks, in the middle of the exchange."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.subject("library")

# Rank 0 is the main thread, rank 1 another; their bytes travel through Python.
PROGRAM = """
import gc, signal, sys, threading
import numpy as np
import gear
from gear.distributed.channels.carried import TransportChannel

WHAT, FOLDER = sys.argv[1:]


class Interrupted(TransportChannel):
    # Of threads; at[rank] = (n, what): what() runs in the n-th call to come.

    def __init__(self, inner):
        super().__init__(inner._open(), inner.members, inner.failure)

    def allgather(self, *given):
        self.interrupt()
        super().allgather(*given)

    def exchange_bytes(self, *given):
        self.interrupt()
        return super().exchange_bytes(*given)

    def interrupt(self):
        calls, what = at.pop(self.rank, (0, None))
        if calls > 1:
            at[self.rank] = (calls - 1, what)
        elif calls == 1:
            what()

    def duplicate(self):
        return Interrupted(super().duplicate())


at = {}
done = []
groups = gear.Group.loopback(2, timeout_s=30)
schema = gear.Schema([gear.Column("x", (), "float32")])


class Actor:
    pass


def run(rank):
    channel = Interrupted(groups[rank]._channel)
    channel.kind = "test"
    group = gear.Group(channel, groups[rank].members, launcher="test", transport="group")
    buffer = gear.ReplayBuffer(schema, 256, page_steps=16, group=group)
    writer = buffer.writer()
    writer.extend(x=np.arange(40, dtype=np.float32))
    writer.end_episode(terminated=True)
    writer.append(x=0.0)
    loader = buffer.loader(batch_size=4, sampler=gear.Uniform(), seed=3, prefetch=0)
    ids = next(loader).ids

    if WHAT == "collection":
        actor = Actor()
        actor.writer, actor.me = buffer.writer(), actor
        actor.writer.append(x=1.0)
        gc.disable()
        del actor
        what = gc.collect
    elif WHAT == "append":
        what = lambda: writer.append(x=1.0)
    elif WHAT == "end_episode":
        what = lambda: writer.end_episode(terminated=False)
    elif WHAT == "look":
        what = lambda: (buffer.stats(), buffer.episodes(), len(buffer))
    elif WHAT == "update":
        what = lambda: buffer.update(ids, np.ones(len(ids), np.float32))
    elif WHAT == "save":
        what = lambda: buffer.save(FOLDER)
    if rank == 0:  # as the interpreter runs a handler: between two of its instructions
        signal.signal(signal.SIGUSR1, lambda *_: what())
        at[rank] = (1, lambda: signal.raise_signal(signal.SIGUSR1))
    else:
        at[rank] = (1, what)
    for _ in range(3):
        next(loader)
    assert rank not in at, "nothing was interrupted"
    done.append((buffer.stats()["episodes"], buffer.stats()["steps"]))


peer = threading.Thread(target=run, args=(1,), daemon=True)
peer.start()
run(0)
peer.join()
print(*done)
"""


@pytest.mark.parametrize("what", ["collection", "append", "end_episode", "look", "update", "save"])
def test_python_in_the_exchange_of_a_draw(what: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, what, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr
    steps = {"collection": (3, 42), "append": (2, 42)}.get(what, (2, 41))
    assert run.stdout == f"{steps} {steps}\n"
