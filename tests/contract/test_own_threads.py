"""The core's own threads: when they begin, what they are called, and whose the signals are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("csrc", "process_group/src")

START = """
import os, signal, sys, threading
import numpy as np

def tasks():
    found = {}
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/status") as file:
            lines = dict(line.split(":", 1) for line in file)
        found[int(task)] = lines["Name"].strip(), int(lines["SigBlk"], 16)
    return found

before = tasks()
import gear
assert tasks().keys() == before.keys(), tasks()
assert gear.__version__ and gear._core.build_info()["threads"] == 4
assert tasks().keys() == before.keys(), tasks()

schema = gear.Schema([gear.Column("x", (256,), "int64")])

def filled(**options):
    buffer = gear.ReplayBuffer(schema, 256, page_steps=16, **options)
    with buffer.writer() as writer:
        writer.extend(x=np.zeros((128, 256), np.int64))
    return buffer
"""

# The default of this signal ends the process, wherever a thread takes it.
SIGNALS = """
buffer = filled()
loader = buffer.loader(64, framework="numpy")
next(loader)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.kill(os.getpid(), signal.SIGUSR1)
assert signal.sigtimedwait({signal.SIGUSR1}, 60).si_signo == signal.SIGUSR1
sys.exit(7)
"""

ALL_THREADS = """
ended = threading.Barrier(2)

def rank(group):
    buffer = filled(group=group, tier="shared", publish=True)
    loaders = [
        buffer.loader(64, framework="numpy"),
        buffer.loader(64, framework="numpy", remote="pull"),
    ]
    for loader in loaders:
        next(loader)
    if ended.wait() == 0:
        look()
    ended.wait()
    loaders[1].close()
    loaders[0].close()
    buffer.close()

def look():
    own = {name: blocked for name, blocked in tasks().values() if name.startswith("gear-")}
    assert own.keys() == {"gear-pool", "gear-gather", "gear-group", "gear-pull"}, own
    for name, blocked in own.items():
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
            assert blocked >> (one - 1) & 1, (name, one)

alone = filled()
loader = alone.loader(64, framework="numpy")
next(loader)
threads = [
    threading.Thread(target=rank, args=(group,))
    for group in gear.Group.loopback(2, timeout_s=60)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
loader.close()
del loader
left = {name for name, _ in tasks().values() if name.startswith("gear-")}
assert left == {"gear-pool"}, left
sys.exit(7)
"""


def run(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", START + program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        # NumPy's threads take signals.
        env={**os.environ, "GEAR_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 7, f"{done.returncode}\n{done.stdout}{done.stderr}"


def test_a_signal_that_a_program_waits_for_comes_to_it() -> None:
    run(SIGNALS)


def test_every_own_thread_has_a_name_and_takes_no_signal() -> None:
    run(ALL_THREADS)


def test_threads_are_made_in_one_place() -> None:
    """Who needs a thread takes base::OwnThread; an extension that is linked without it blocks the
    signals itself."""
    made = re.compile(r"std::j?thread\b(?!::)")
    found = set()
    for source in [path for folder in SOURCES for path in (ROOT / folder).rglob("*")]:
        if source.suffix in {".cpp", ".cu", ".h", ".cuh"} and made.search(source.read_text()):
            found.add(source.relative_to(ROOT).as_posix())
    engine, announcer = (f"process_group/src/engine/{one}" for one in ("engine", "announcer"))
    assert found == {
        "csrc/base/threads/own_thread.h",
        "csrc/base/threads/own_thread.cpp",
        f"{engine}.h",
        f"{engine}.cpp",
        f"{announcer}.h",
        f"{announcer}.cpp",
        "process_group/src/over_mpi/mpi_wire.cpp",
    }
    for maker in (engine, announcer):
        assert "SignalsBlocked" in (ROOT / f"{maker}.cpp").read_text()
