"""Calls every public method of every class of GEAR where nobody should: what test_misuse.py runs.

Usage: misuse.py SCENARIO CLASS. Any exception will do and any result; a signal, or a call that does
not come back, will not. Exit code 0, and one line: how many calls raised, how many returned.
"""

from __future__ import annotations

import faulthandler
import inspect
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import gear
from gear.distributed import SharedBatch, SharedLoader

SCHEMA = gear.Schema([gear.Column("x", (3,), "float32"), gear.Column("n", (), "int32")])
ROW = {"x": np.ones(3, np.float32), "n": 1}
ROWS = {"x": np.ones((5, 3), np.float32), "n": np.arange(5, dtype=np.int32)}
TIMEOUT_S = 0.3  # of waits for other ranks and for the rate limit
HANG_S = 150.0  # then all threads' tracebacks are printed and the process ends
DUNDERS = ("__len__", "__bool__", "__iter__", "__next__", "__repr__", "__enter__", "__contains__")
DUNDERS += ("__getitem__", "__exit__", "__hash__", "__eq__")


@dataclass
class Made:
    """An object, and what must live as long."""

    thing: Any
    others: tuple[Any, ...] = ()


def filled(group: gear.Group | None = None, **options: Any) -> gear.ReplayBuffer:
    buffer = gear.ReplayBuffer(SCHEMA, 256, page_steps=4, group=group, **options)
    with buffer.writer() as writer:
        for _ in range(8):
            writer.extend(**ROWS)
            writer.end_episode(terminated=True)
    return buffer


def a_buffer(group: gear.Group | None) -> Made:
    return Made(filled(group))


def a_writer(group: gear.Group | None) -> Made:
    # A writer that soon waits for samples: appends must come back from that wait, too.
    buffer = gear.ReplayBuffer(
        SCHEMA, 256, page_steps=4, rate_limit=gear.RateLimit(1.0, 1, 40.0), group=group
    )
    return Made(buffer.writer(timeout_s=TIMEOUT_S), (buffer,))


def a_vector_writer(group: gear.Group | None) -> Made:
    buffer = gear.ReplayBuffer(
        SCHEMA, 256, page_steps=4, rate_limit=gear.RateLimit(1.0, 1, 40.0), group=group
    )
    return Made(buffer.writer(5, autoreset="disabled", timeout_s=TIMEOUT_S), (buffer,))


def a_loader(group: gear.Group | None) -> Made:
    buffer = filled(group)
    sampler = gear.Weighted()
    return Made(buffer.loader(8, sampler=sampler, framework="numpy"), (buffer,))


def a_batch(group: gear.Group | None) -> Made:
    made = a_loader(None)
    return Made(next(made.thing), (made,))


def a_group(group: gear.Group | None) -> Made:
    return Made(group or gear.Group.single())


def a_shared_loader(group: gear.Group | None) -> Made:
    made = a_loader(None)
    return Made(SharedLoader(made.thing, group or gear.Group.single()), (made,))


def a_shared_batch(group: gear.Group | None) -> Made:
    made = a_shared_loader(None)
    return Made(next(made.thing), (made,))


def a_transport(group: gear.Group | None) -> Made:
    group = group or gear.Group.single()
    return Made(group.transport(), (group,))


FACTORIES: dict[str, Callable[[gear.Group | None], Made]] = {
    "ReplayBuffer": a_buffer,
    "Writer": a_writer,
    "VectorWriter": a_vector_writer,
    "Loader": a_loader,
    "Batch": a_batch,
    "Group": a_group,
    "SharedLoader": a_shared_loader,
    "SharedBatch": a_shared_batch,
    "Transport": a_transport,
}
# Values and errors: nothing in them can be closed, forked or left behind.
VALUES = {"Column", "Schema", "Step", "Window", "Derived", "Terminated", "IsLast", "StepIndex"}
VALUES |= {"Sampler", "Uniform", "Weighted", "Sequential", "Fifo", "Lifo", "TopK", "RateLimit"}
VALUES |= {"Episode", "BufferStats", "LoaderStats"}


def ids_of(made: Made) -> np.ndarray:
    return np.zeros(3, np.int64)


# Arguments of methods that need some; by name, whatever class has it.
ARGUMENTS: dict[str, Callable[[Made], tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "append": lambda made: ((), ROWS if isinstance(made.thing, gear.VectorWriter) else ROW),
    "extend": lambda made: ((), ROWS),
    "update": lambda made: ((ids_of(made), np.ones(3)), {}),
    "priorities": lambda made: ((ids_of(made),), {}),
    "collect": lambda made: ((ids_of(made),), {"framework": "numpy"}),
    "loader": lambda made: ((4,), {"framework": "numpy", "timeout_s": TIMEOUT_S}),
    "load_state_dict": lambda made: (({"version": 1},), {}),
    "save": lambda made: ((os.path.join(tempfile.mkdtemp(), "replay"),), {}),
    "load": lambda made: (("/nowhere/replay",), {}),
    "exchange": lambda made: (([],), {}),
    "doing": lambda made: (("a test",), {}),
    "fail": lambda made: (("ended in a test",), {}),
    "pass_on": lambda made: ((RuntimeError("gone"), "a test"), {}),
    "lost": lambda made: ((RuntimeError("gone"), 0.0), {}),
    "missing": lambda made: ((0.0,), {}),
    "loopback": lambda made: ((2,), {}),
    "from_mesh": lambda made: ((None,), {}),
    "from_mpu": lambda made: ((None,), {}),
    "allgather": lambda made: ((b"abc",), {}),
    "get": lambda made: (("x",), {}),
    "__getitem__": lambda made: (("x",), {}),
    "__contains__": lambda made: (("x",), {}),
    "__exit__": lambda made: ((None, None, None), {}),
    "__eq__": lambda made: ((made.thing,), {}),
    "wrap_transports": lambda made: ((lambda transport: transport,), {}),
}
# They start MPI or look for a launcher, which is no matter of this test.
LEFT_OUT = {"Group": {"from_env", "from_mpi", "from_horovod", "from_torch"}}


def class_of(name: str) -> type:
    found = {"SharedLoader": SharedLoader, "SharedBatch": SharedBatch}.get(name)
    return found or getattr(gear, name, None) or getattr(gear._core, name)


def methods_of(name: str) -> list[str]:
    kind = class_of(name)
    public = [each for each in dir(kind) if not each.startswith("_")]
    own = [each for each in DUNDERS if getattr(kind, each, None) is not None]
    return [each for each in [*public, *own] if each not in LEFT_OUT.get(name, ())]


def needs_arguments(method: Any) -> bool:
    """Whether it cannot be called without any; of a C function that does not say, it may not."""
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return False
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return any(one.default is one.empty and one.kind not in variadic for one in parameters)


calls: Counter[str] = Counter()


def call(made: Made, name: str) -> None:
    """The method, or the property, of that name."""
    try:
        found = getattr(made.thing, name)
        if not callable(found):
            calls["returned"] += 1
            return
        if name not in ARGUMENTS and needs_arguments(found):
            print(f"misuse: {type(made.thing).__name__}.{name} needs an entry in ARGUMENTS")
            os._exit(3)
        positional, named = ARGUMENTS.get(name, lambda made: ((), {}))(made)
        found(*positional, **named)
        calls["returned"] += 1
    except Exception:  # noqa: BLE001 - which one does not matter here
        calls["raised"] += 1


# ---- where nobody should ----


def from_two_threads(name: str) -> None:
    """Each method from two threads at once, then while another closes; then all of them mixed."""
    methods = methods_of(name)

    def together(made: Made, *sequences: list[str]) -> None:
        gate = threading.Barrier(len(sequences))

        def run(sequence: list[str]) -> None:
            gate.wait()
            for method in sequence:
                call(made, method)

        threads = [threading.Thread(target=run, args=(one,)) for one in sequences]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    for method in methods:
        together(FACTORIES[name](None), [method] * 20, [method] * 20)
        if "close" in methods:
            together(FACTORIES[name](None), [method] * 20, [method, "close"])
    mixed = [each for each in methods if each not in ("close", "__exit__")]
    together(FACTORIES[name](None), mixed * 5, mixed[::-1] * 5)


def after_close(name: str) -> None:
    """After it was closed, and after what it came from was closed."""
    for method in methods_of(name):
        made = FACTORIES[name](None)
        if hasattr(made.thing, "close"):
            made.thing.close()
        call(made, method)
        made = FACTORIES[name](None)
        for other in made.others:
            if hasattr(other, "close"):
                other.close()
        call(made, method)


def in_a_forked_child(name: str) -> None:
    """The child ends as programs do, and the parent goes on."""
    for method in methods_of(name):
        made = FACTORIES[name](None)
        time.sleep(0.02)  # what works in the background is done
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            faulthandler.dump_traceback_later(HANG_S / 4, exit=True)
            call(made, method)
            del made
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code != 0:
            print(f"misuse: {name}.{method} in a forked child ended it with {code}")
            os._exit(4)
        call(made, method)


def with_the_other_side_gone(name: str) -> None:
    """The other rank has made the same things, and makes no call any more."""
    for method in methods_of(name):
        groups = gear.Group.loopback(2, timeout_s=TIMEOUT_S)
        made: list[Made | None] = [None, None]

        def make(group: gear.Group, made: list[Made | None] = made) -> None:
            if name == "SharedLoader" and group.rank == 1:
                made[1] = Made(SharedLoader(None, group))
            else:
                made[group.rank] = FACTORIES[name](group)

        threads = [threading.Thread(target=make, args=(group,)) for group in groups]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        made[1] = None
        groups.pop()
        mine = made[0]
        assert mine is not None
        call(mine, method)
        call(mine, method)


SCENARIOS: dict[str, Callable[[str], None]] = {
    "two-threads": from_two_threads,
    "after-close": after_close,
    "forked-child": in_a_forked_child,
    "other-side-gone": with_the_other_side_gone,
}


def cases() -> Iterator[tuple[str, str]]:
    for scenario in SCENARIOS:
        for name in FACTORIES:
            yield scenario, name


def main() -> None:
    scenario, name = sys.argv[1:]
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    faulthandler.enable()
    if scenario != "forked-child":  # its thread would be missing in the child, which waits for it
        faulthandler.dump_traceback_later(HANG_S, exit=True)
    SCENARIOS[scenario](name)
    faulthandler.cancel_dump_traceback_later()
    print(f"{calls['raised']} raised, {calls['returned']} returned")


if __name__ == "__main__":
    main()
