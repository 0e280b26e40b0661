"""Calls every public method of a buffer, a writer and a loader in a forked child of their process:
what test_forked_child.py runs.

Usage: forked_child.py TIER NAME END. Prints one line of JSON: what each call in the child came to
({"ReplayBuffer.update": "InvalidArgument: ...", "ReplayBuffer.stats": "answered", ...}), the two
processes, and what the parent found afterwards. The child ends as END says: "exit", "collect" (it
destroys all first) or "killed".
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import gear

HANG_S = 60
STEPS = 32
ROWS = {"x": np.arange(STEPS, dtype=np.int64)}
ROW = {"x": np.int64(7)}


class World(NamedTuple):
    """What the parent made. Two loaders: one by weight, one of epochs."""

    buffer: gear.ReplayBuffer
    writer: gear.Writer
    vector: gear.VectorWriter
    loader: gear.Loader
    epochs: gear.Loader
    ids: np.ndarray
    state: dict[str, Any]
    folder: Path


def set_beta(world: World) -> None:
    world.loader.beta = 0.5


# Every public method and property, with its call. REFUSED: it raises InvalidArgument that names
# both processes. ANSWERED: it returns. ROWS_ONLY_ON_HOST: it returns on tier "host", else REFUSED.
REFUSED, ANSWERED, ROWS_ONLY_ON_HOST = "refused", "answered", "rows"
Expected = tuple[str, Callable[[World], Any]]
BUFFER: dict[str, Expected] = {
    "schema": (ANSWERED, lambda world: world.buffer.schema),
    "group": (ANSWERED, lambda world: world.buffer.group),
    "tier": (ANSWERED, lambda world: world.buffer.tier),
    "name": (ANSWERED, lambda world: world.buffer.name),
    "capacity": (ANSWERED, lambda world: world.buffer.capacity),
    "page_steps": (ANSWERED, lambda world: world.buffer.page_steps),
    "num_episodes": (ANSWERED, lambda world: world.buffer.num_episodes),
    "nbytes": (ANSWERED, lambda world: world.buffer.nbytes),
    "stats": (ANSWERED, lambda world: world.buffer.stats()),
    "episodes": (ANSWERED, lambda world: world.buffer.episodes()),
    "priorities": (ANSWERED, lambda world: world.buffer.priorities(world.ids)),
    "writer": (REFUSED, lambda world: world.buffer.writer()),
    "update": (REFUSED, lambda world: world.buffer.update(world.ids, np.ones(len(world.ids)))),
    "loader": (
        ROWS_ONLY_ON_HOST,
        lambda world: next(world.buffer.loader(8, seed=1, framework="numpy")),
    ),
    "collect": (
        ROWS_ONLY_ON_HOST,
        lambda world: world.buffer.collect(world.ids, framework="numpy"),
    ),
    "save": (REFUSED, lambda world: world.buffer.save(world.folder / "saved")),
    "load": (ANSWERED, lambda world: gear.ReplayBuffer.load(world.folder / "saved")),
    "close": (ANSWERED, lambda world: world.buffer.close()),
    "__len__": (ANSWERED, lambda world: len(world.buffer)),
    "__bool__": (ANSWERED, lambda world: bool(world.buffer)),
    "__repr__": (ANSWERED, lambda world: repr(world.buffer)),
    "__enter__": (ANSWERED, lambda world: world.buffer.__enter__()),
    "__exit__": (ANSWERED, lambda world: world.buffer.__exit__(None, None, None)),
}
WRITER: dict[str, Expected] = {
    "append": (REFUSED, lambda world: world.writer.append(**ROW)),
    "extend": (REFUSED, lambda world: world.writer.extend(**ROWS)),
    "end_episode": (REFUSED, lambda world: world.writer.end_episode(terminated=True)),
    "episode": (ANSWERED, lambda world: world.writer.episode),
    "close": (ANSWERED, lambda world: world.writer.close()),
    "__enter__": (ANSWERED, lambda world: world.writer.__enter__()),
    "__exit__": (ANSWERED, lambda world: world.writer.__exit__(ValueError, None, None)),
}
VECTOR: dict[str, Expected] = {
    "append": (REFUSED, lambda world: world.vector.append(x=np.zeros(2, np.int64))),
    "end_episode": (REFUSED, lambda world: world.vector.end_episode()),
    "flush": (REFUSED, lambda world: world.vector.flush()),
    "episodes": (ANSWERED, lambda world: world.vector.episodes),
    "ended": (ANSWERED, lambda world: world.vector.ended),
    "close": (ANSWERED, lambda world: world.vector.close()),
    "__enter__": (ANSWERED, lambda world: world.vector.__enter__()),
    "__exit__": (ANSWERED, lambda world: world.vector.__exit__(ValueError, None, None)),
}
LOADER: dict[str, Expected] = {
    "beta": (ANSWERED, lambda world: world.loader.beta),
    "beta.setter": (REFUSED, set_beta),
    "seed": (ANSWERED, lambda world: world.loader.seed),
    "state_dict": (REFUSED, lambda world: world.loader.state_dict()),
    "load_state_dict": (REFUSED, lambda world: world.loader.load_state_dict(world.state)),
    "stats": (REFUSED, lambda world: world.loader.stats()),
    "close": (ANSWERED, lambda world: world.loader.close()),
    "__iter__": (ANSWERED, lambda world: iter(world.loader)),
    "__next__": (REFUSED, lambda world: next(world.loader)),
    "__bool__": (ANSWERED, lambda world: bool(world.loader)),
    "__len__": (REFUSED, lambda world: len(world.epochs)),
    "__enter__": (ANSWERED, lambda world: world.loader.__enter__()),
    "__exit__": (ANSWERED, lambda world: world.loader.__exit__(None, None, None)),
}
TABLES = {"Writer": WRITER, "VectorWriter": VECTOR, "Loader": LOADER, "ReplayBuffer": BUFFER}
LAST = ("close", "__enter__", "__exit__")  # behind the others


def outcomes(world: World) -> dict[str, str]:
    """What each call comes to in this process; those that close things come last."""
    found = {}
    for last in (False, True):
        for kind, table in TABLES.items():
            for name, (_, call) in table.items():
                if (name in LAST) != last:
                    continue
                try:
                    call(world)
                    found[f"{kind}.{name}"] = "answered"
                except Exception as error:  # noqa: BLE001 - which one is what is looked at
                    found[f"{kind}.{name}"] = f"{type(error).__name__}: {error}"
    return found


def make(tier: str, name: str | None) -> World:
    schema = gear.Schema([gear.Column("x", (), "int64")])
    buffer = gear.ReplayBuffer(schema, 4 * STEPS, tier=tier, name=name, page_steps=16)
    with buffer.writer() as writer:
        writer.extend(**ROWS)
        writer.end_episode(terminated=True)
    ids = buffer.episodes()[0].ids
    folder = Path(tempfile.mkdtemp())
    buffer.save(folder / "saved")
    loader = buffer.loader(8, sampler=gear.Weighted(), framework="numpy")
    next(loader)
    epochs = buffer.loader(8, sampler=gear.Sequential(), framework="numpy")
    open_writer = buffer.writer()
    open_writer.append(**ROW)
    vector = buffer.writer(2, autoreset="disabled")
    vector.append(x=np.array([8, 9]))
    return World(buffer, open_writer, vector, loader, epochs, ids, loader.state_dict(), folder)


def in_the_child(world: World, pipe: int, end: str) -> None:
    """Never returns."""
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    with os.fdopen(pipe, "w") as out:
        json.dump(outcomes(world), out)
    if end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "collect":
        del world
        gc.collect()
    sys.exit(0)


def main() -> None:
    tier, name, end = sys.argv[1:]
    world = make(tier, name or None)
    files = sorted(path.read_bytes() for path in (world.folder / "saved").iterdir())
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        in_the_child(world, writing, end)
    os.close(writing)
    with os.fdopen(reading) as answers:
        found = json.loads(answers.read() or "{}")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    # The parent goes on as if there had been no child.
    buffer = world.buffer
    same = [
        buffer.collect(world.ids, framework="numpy")["x"].tolist() == ROWS["x"].tolist(),
        sorted(path.read_bytes() for path in (world.folder / "saved").iterdir()) == files,
        len(buffer) == STEPS + 3,
        world.writer.episode is not None,
        None not in world.vector.episodes,
    ]
    world.writer.extend(**ROWS)
    world.writer.end_episode(terminated=True)
    world.vector.append(x=np.array([10, 11]))
    next(world.loader)
    stored = [
        buffer.collect(episode.ids, framework="numpy")["x"].tolist()
        for episode in buffer.episodes()[1:]
    ]
    same.append(stored == [[7, *ROWS["x"].tolist()], [8, 10], [9, 11]])
    print(json.dumps({"parent": os.getpid(), "child": child, "code": code, "same": same, **found}))


if __name__ == "__main__":
    main()
