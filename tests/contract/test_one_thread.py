"""A loader called where it cannot be: by two threads at once, in a forked child."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

import gear

SCHEMA = gear.Schema([gear.Column("x", (16,), "float32")])

MAKE = """
import gc, os, signal, sys, threading
import numpy as np
import gear

buffer = gear.ReplayBuffer(gear.Schema([gear.Column("x", (16,), "float32")]), 4096)
writer = buffer.writer()
writer.extend(x=np.arange(4096 * 16, dtype=np.float32).reshape(4096, 16))
writer.end_episode()
loader = buffer.loader(64, framework="numpy")
next(loader)
"""

TWO_THREADS = """
refusals = []

def draw():
    for _ in range(3000):
        try:
            rows = next(loader)["x"]
        except gear.InvalidArgument as error:
            assert "one thread at a time" in str(error), error
        else:
            assert (np.diff(rows, axis=1) == 1).all()

threads = [threading.Thread(target=draw) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
next(loader)
sys.exit(7)
"""

FORKED = """
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    try:
        next(loader)
    except gear.InvalidArgument as error:
        assert "forked" in str(error), error
    else:
        os._exit(3)
    if sys.argv[1] == "close":
        loader.close()
    if sys.argv[1] == "collect":
        del loader
        gc.collect()
    sys.exit(7)
_, status = os.waitpid(pid, 0)
next(loader)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def run(program: str, *arguments: str) -> None:
    command = [sys.executable, "-c", MAKE + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 7, done.stderr


def test_threads_in_next_are_refused_or_served() -> None:
    run(TWO_THREADS)


@pytest.mark.parametrize("end", ["close", "collect", "exit"])
def test_a_forked_child_ends(end: str) -> None:
    run(FORKED, end)


def test_a_call_during_another_threads_is_refused() -> None:
    limit = gear.RateLimit(samples_per_insert=1.0, min_steps=8, slack=64.0)
    with gear.ReplayBuffer(SCHEMA, 64, rate_limit=limit) as buffer, buffer.writer() as writer:
        loader = buffer.loader(4, framework="numpy")
        batches = []

        def wait() -> None:
            while not batches:
                try:
                    batches.append(next(loader))
                except gear.InvalidArgument:  # refused itself, during a call of the test's
                    continue

        waiting = threading.Thread(target=wait)
        waiting.start()
        refusal = ""
        while not refusal:  # the other thread is in its call but for moments
            try:
                loader.state_dict()
            except gear.InvalidArgument as error:
                refusal = str(error)
        assert "one thread at a time" in refusal
        assert loader.stats()["batches"] == 0, "what may be asked meanwhile"
        writer.extend(x=np.zeros((32, 16), np.float32))
        writer.end_episode()
        waiting.join(60)
        assert len(batches) == 1
