"""What the core logs is Python's: a log handler, and a finaliser that runs in it, may call the
buffer. So nobody logs with a lock of the core held."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "csrc"

# A handler that does whatever a program may do with a buffer.
HANDLER = """
import faulthandler, gc, logging, os, resource, signal, subprocess, sys, tempfile
faulthandler.dump_traceback_later(60, exit=True)
import numpy as np
import gear

schema = gear.Schema([gear.Column("x", (), "int64")])
buffer = gear.ReplayBuffer(schema, 1024, page_steps=16)
writer = buffer.writer()
writer.extend(x=np.arange(32))
writer.end_episode()
ids = buffer.episodes()[0].ids
heard, finalised = [], []

class Held:
    def __init__(self):
        self.me = self  # garbage that the collector alone finds
        self.writer = buffer.writer()
        self.writer.append(x=np.int64(1))
    def __del__(self):
        self.writer.end_episode(terminated=True)  # cut off, it would be told to this handler
        self.writer.close()
        finalised.append(len(buffer))

class Calls(logging.Handler):
    def emit(self, record):
        heard.append(record.getMessage())
        len(buffer), repr(buffer), buffer.stats(), buffer.episodes(), buffer.priorities(ids)
        buffer.update(ids, np.ones(32))
        writer.append(x=np.int64(2))
        assert buffer.collect(ids, framework="numpy")["x"].tolist() == list(range(32))
        Held()
        gc.collect()

logging.getLogger("gear").addHandler(Calls())
logging.getLogger("gear").setLevel(logging.DEBUG)

# A process that is killed while it has memory of that name.
def leave(name):
    program = (
        "import os, signal, gear; schema = gear.Schema([gear.Column('x', (), 'int64')]); "
        f"made = gear.ReplayBuffer(schema, 64, tier='shared', name={name!r}); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program])

def end(word):
    assert any(word in message for message in heard), heard
    assert len(finalised) == len(heard)
    sys.exit(7)
"""

SAVE = """
folder = tempfile.mkdtemp()
buffer.save(folder)
os.mkdir(os.path.join(folder, "shard-old.gear"))
buffer.save(folder)
loaded = gear.ReplayBuffer.load(folder)
assert loaded.collect(loaded.episodes()[0].ids, framework="numpy")["x"].tolist() == list(range(32))
end("older files in it could not be removed")
"""

STALE_NAME = """
name = f"test-log-{os.getpid()}"
leave(name)
gear.ReplayBuffer(schema, 64, tier="shared", name=name).close()
end("left behind when it ended")
"""

# Another process of this machine that makes a buffer may come first, and remove it.
ABANDONED = """
for attempt in range(20):
    leave(f"ranks.{os.getpid():08x}{attempt:08x}")
    gear.ReplayBuffer(schema, 64).close()
    if heard:
        break
end("which a killed process left behind")
"""

# Threads have stacks of a GiB here, and the process gets half a GiB more.
NO_THREADS = """
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (512 << 20), resource.RLIM_INFINITY))
buffer.collect(ids, framework="numpy")
end("the system refused thread 2 of 4")
"""

# The handler takes pages of the buffer that wants one.
SHORT_EPISODES = """
small = gear.ReplayBuffer(schema, 64, page_steps=16)

class Takes(logging.Handler):
    def emit(self, record):
        other = small.writer()
        other.append(x=np.int64(3))
        other.end_episode()
        small.stats()

logging.getLogger("gear").addHandler(Takes())
short = small.writer()
for x in range(6):
    short.append(x=np.int64(x))
    short.end_episode()
kept = [small.collect(one.ids, framework="numpy")["x"].tolist() for one in small.episodes()]
assert kept == [[3], [3], [4], [5]], kept
end("pages are freed")
"""

PROGRAMS = {
    "save": SAVE,
    "stale-name": STALE_NAME,
    "abandoned": ABANDONED,
    "no-threads": NO_THREADS,
    "short-episodes": SHORT_EPISODES,
}

# Every source that logs, how often, and which program comes there; else what it holds there.
SOURCES = {
    "store/checkpoint/snapshot.cpp": (1, "save"),
    "store/checkpoint/snapshot_index.cpp": (1, "no lock: bytes, before their shard is made"),
    "memory/shared/shared_region.cpp": (1, "stale-name"),
    "memory/shared/made_up_name.cpp": (2, "abandoned"),
    "base/threads/thread_pool.cpp": (1, "no-threads"),
    "memory/region.cpp": (1, "no lock: a region is made before its user takes one"),
    "store/shard.cpp": (1, "short-episodes"),
    "store/writing/writer.cpp": (1, "no lock: it was given up when the exception came"),
    "store/writing/vector_writer.cpp": (1, "no lock: it was given up when the exception came"),
    "group/peers/mappings.cpp": (1, "no lock: between two messages of all ranks"),
    "group/peers/outbox.cpp": (1, "no lock: between two messages of all ranks"),
    "group/peers/peers.cpp": (1, "no lock: between two messages of all ranks"),
    "group/cuda/peer_memory.cpp": (1, "no lock: between two messages of all ranks"),
    "transport/one_sided/one_sided_transport.cpp": (1, "no lock: behind messages of all ranks"),
    "link/cuda/link_cache.cpp": (1, "no lock: LaterLog ends behind it"),
    "bindings/collect.cpp": (1, "no lock: between two slices of a wait"),
    "bindings/limited_writing.h": (1, "no lock: between two slices of a wait"),
    "bindings/vector_writer.cpp": (1, "no lock: it was given up when the exception came"),
    "deliver/draw.cpp": (1, "no lock: the shard's was given up when the exception came"),
}


# By a shell: preexec_fn would fork this process, of which JAX warns where it is there.
LARGE_STACKS = ["bash", "-c", 'ulimit -s 1048576 && exec "$@"', "-"]


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_log_handler_may_call_the_buffer(name: str) -> None:
    words = LARGE_STACKS if name == "no-threads" else []
    done = subprocess.run(
        [*words, sys.executable, "-c", HANDLER + PROGRAMS[name]],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "GEAR_LOG": "info", "GEAR_NUM_THREADS": "4"},
    )
    assert done.returncode == 7, f"{done.returncode}\n{done.stdout}{done.stderr}"


def test_every_source_that_logs_is_known() -> None:
    """Who logs at another place adds it to SOURCES, and a program if one can come there."""
    call = re.compile(r"\b(?:base::)?log\((?:base::)?(?:Level::|level\b)")
    found = {}
    for source in sorted(CORE.rglob("*")):
        if source.suffix in {".cpp", ".cu", ".h", ".cuh"} and source.stem != "log":
            count = len(call.findall(re.sub(r"\s+", "", source.read_text())))
            if count:
                found[source.relative_to(CORE).as_posix()] = count
    assert found == {name: count for name, (count, _) in SOURCES.items()}
