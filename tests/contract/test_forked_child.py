"""In a forked child a buffer is read, or the call is refused; and its parent never notices."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from contract import forked_child

import gear

GPU = pytest.mark.gpu
PLACES = [
    pytest.param("host", False, id="host"),
    pytest.param("shared", True, id="shared"),
    pytest.param("pinned", False, id="pinned", marks=GPU),
    pytest.param("pinned", True, id="pinned-named", marks=GPU),
]
SHM = Path("/dev/shm")


def run(program: str | Path, *arguments: str, environment: dict[str, str] | None = None) -> str:
    first = [str(program)] if isinstance(program, Path) else ["-c", program]
    done = subprocess.run(
        [sys.executable, *first, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(("tier", "named"), PLACES)
@pytest.mark.parametrize("end", ["exit", "collect", "killed"])
def test_every_method_reads_or_is_refused(tier: str, named: bool, end: str) -> None:
    name = f"test-forked-{os.getpid()}" if named else ""
    found: dict[str, Any] = json.loads(run(Path(forked_child.__file__), tier, name, end))
    assert found["code"] == (-signal.SIGKILL if end == "killed" else 0)
    assert found["same"] == [True] * 6
    wrong = []
    for kind, table in forked_child.TABLES.items():
        for method, (expected, _) in table.items():
            outcome = found[f"{kind}.{method}"]
            if expected == forked_child.ANSWERED or (
                expected == forked_child.ROWS_ONLY_ON_HOST and tier == "host"
            ):
                fits = outcome == "answered"
            else:
                words = (f"process {found['parent']}", f"process {found['child']}", "forked")
                fits = outcome.startswith("InvalidArgument: [")
                fits = fits and all(word in outcome for word in words)
            if not fits:
                wrong.append(f"{kind}.{method} is to be {expected}: {outcome}")
    assert not wrong, "\n".join(wrong)
    assert not list(SHM.glob(f"*{name}*")) or not named, "the parent took its memory along"


@pytest.mark.parametrize("kind", list(forked_child.TABLES))
def test_every_method_is_listed(kind: str) -> None:
    """A method that is added has an entry in the table: may a forked child call it?"""
    known = set(dir(object)) | {"__del__", "__class_getitem__", "__subclasshook__"}
    listed = forked_child.TABLES[kind]
    found = set()
    for one in inspect.getmro(getattr(gear, kind)):
        if one.__module__.partition(".")[0] == "gear":
            found |= {
                name for name, what in vars(one).items() if callable_or_property(name, what)
            } - known
    found |= {"__repr__"} & set(listed)
    assert found == {name for name in listed if "." not in name}
    settable = {
        name
        for name, what in vars(getattr(gear, kind)).items()
        if isinstance(what, property) and what.fset is not None
    }
    assert settable == {name.partition(".")[0] for name in listed if "." in name}


def callable_or_property(name: str, what: object) -> bool:
    if name.startswith("_") and not name.startswith("__"):
        return False
    if name in ("__init__", "__new__", "__doc__", "__module__", "__class__"):
        return False
    return callable(what) or isinstance(what, (property, classmethod, staticmethod))


MAKE = """
import gc, os, signal, sys, threading
import numpy as np
import gear

def buffer_of(**options):
    schema = gear.Schema([gear.Column("x", (), "int64")])
    buffer = gear.ReplayBuffer(schema, 4096, page_steps=16, **options)
    with buffer.writer() as writer:
        writer.extend(x=np.arange(2048))
        writer.end_episode()
    return buffer

def in_a_child(what):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        what()
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""

OWN_LOADERS = """
buffer = buffer_of()
buffer.update(buffer.episodes()[0].ids, np.arange(2048) % 7)

def draw():
    for sampler in (gear.Uniform(), gear.Weighted(alpha=1.0), gear.Sequential()):
        mine = buffer.loader(256, sampler=sampler, seed=3, framework="numpy")
        for _ in range(4):
            batch = next(mine)
            steps = {int(i): x for x, i in enumerate(buffer.episodes()[0].ids)}
            assert batch["x"].tolist() == [steps[int(i)] for i in batch.ids]
            if isinstance(sampler, gear.Weighted):
                assert (batch["x"] % 7 != 0).all()

in_a_child(draw)
draw()
"""

COUNTED = """
for options, word in (
    ({"max_times_sampled": 2}, "max_times_sampled"),
    ({"rate_limit": gear.RateLimit(1.0, 1, 1e6)}, "rate_limit"),
):
    buffer = buffer_of(**options)

    def draw():
        try:
            buffer.loader(8, timeout_s=5.0)
        except gear.InvalidArgument as error:
            assert word in str(error) and "forked" in str(error), error
        else:
            os._exit(3)
        buffer.collect(buffer.episodes()[0].ids, framework="numpy")

    in_a_child(draw)
"""

# A writer waits for samples, in the middle of a call; what it waits on has a waiter that is not in
# the child. The wait has begun: nothing may be sampled any more that would end it.
WAITING_WRITER = """
buffer = buffer_of(rate_limit=gear.RateLimit(1.0, 1, 4096.0))
writer = buffer.writer()
stored = threading.Event()

def write():
    try:
        for first in range(0, 1 << 20, 16):
            writer.extend(x=np.arange(first, first + 16))
    except gear.InvalidArgument:
        stored.set()

thread = threading.Thread(target=write)
thread.start()
steps, looks = -1, 0
while looks < 20:  # it waits: the count stands still
    threading.Event().wait(0.01)
    now = buffer.stats()["steps_inserted"]
    looks = looks + 1 if now == steps else 0
    steps = now

def end():
    global buffer, writer
    assert buffer.stats()["steps_inserted"] == steps
    try:
        writer.append(x=np.int64(1))
    except gear.InvalidArgument as error:
        assert "forked" in str(error), error
    else:
        os._exit(3)
    if sys.argv[1] == "close":
        writer.close()
        buffer.close()
    if sys.argv[1] == "collect":
        del writer, buffer
        gc.collect()

in_a_child(end)
writer.close()
thread.join()
assert stored.is_set()
"""

# What a child of a process with a pool of threads has, is its own.
OWN_POOL = """
def pool():
    names = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/comm") as file:
            names.append(file.read().strip())
    return names.count("gear-pool")

buffer = buffer_of()
ids = buffer.episodes()[0].ids
buffer.collect(ids, framework="numpy")
assert pool() == 3, pool()

def work():
    assert pool() == 0, pool()
    assert buffer.collect(ids, framework="numpy")["x"].tolist() == list(range(2048))
    assert pool() == 3, pool()
    own = buffer_of()
    next(own.loader(1024, framework="numpy"))
    assert pool() == 3, pool()

in_a_child(work)
assert pool() == 3, pool()
"""


def test_a_child_draws_from_its_copy() -> None:
    run(MAKE + OWN_LOADERS)


def test_draws_that_are_counted_are_refused() -> None:
    run(MAKE + COUNTED)


@pytest.mark.parametrize("end", ["close", "collect", "exit"])
def test_a_child_of_a_process_whose_writer_waits_ends(end: str) -> None:
    run(MAKE + WAITING_WRITER, end)


def test_a_child_has_a_pool_of_its_own() -> None:
    run(MAKE + OWN_POOL, environment={"GEAR_NUM_THREADS": "4"})
