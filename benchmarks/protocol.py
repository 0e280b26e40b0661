"""How the referee and a contestant talk: one JSON object a line, both ends in this file.

Each contestant is a process of its own, with an interpreter of its own (a peer may need another
NumPy), so all start equal and none shares a heap. It answers

    {"op": "fill", "dataset": ..., "quick": ...}     store the experience; memory before and after
    {"op": "start", "workload": {...}, ...}          prepare, warm up, check one batch
    {"op": "round", "calls": n}                      do the work n times: nanoseconds of each call
    {"op": "stop"}                                   let go of what "start" made

and between rounds sits idle while the others have theirs. The timed call includes the consumer:
every output is held as a torch tensor, and its address is read.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import experience
import numpy as np
import workloads

Tensors = Mapping[str, Any]
"""Name -> torch tensor, as delivered."""


class NotMeasured(Exception):
    """A library's call could not be made here; the message says why."""


class Contestant:
    """Base of the adapters.

    A method named like a workload's kind takes the Workload and returns the call to be timed, which
    gives the delivered tensors. A method that is missing or returns None: not offered. One that
    raises NotMeasured: the library has such a call, and it could not be made here.
    """

    name: str
    packages: tuple[str, ...] = ()
    """Distributions whose versions are reported."""
    delivered = 1.0
    """Share of the asked items that is really there (sequences padded at an episode's end)."""
    setting = ""
    """What is true of all its workloads (threads, pages): the variant where a method sets none."""
    variant = ""
    """Which of several ways was taken, when the contestant chose the fastest; set by the method."""

    stored_steps = 0
    """Steps held after fill when these are fewer than all of the data; 0: all."""

    data: experience.Experience
    scratch: Path
    """An empty folder for save and load."""

    def versions(self) -> dict[str, str]:
        """Of Python and of what can change the figures."""
        packages = ("numpy", "torch", *self.packages)
        found = {package: importlib.metadata.version(package) for package in packages}
        return {"python": sys.version.split()[0], **found}

    def fill(self) -> None:
        """Store self.data, full to capacity."""

    def nbytes(self) -> int | None:
        """Bytes that the buffer says it holds; None when it does not say."""
        return None

    def close(self) -> None:
        """Let go of what the last started workload made (a loader, its thread)."""


def serve(contestant: Contestant) -> None:
    """Answer the referee until standard input ends. What libraries print goes to standard error."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    side = _Side(contestant)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=os.environ.get("BENCH_SCRATCH")) as tmp:
        contestant.scratch = Path(tmp)
        for line in sys.stdin:
            request = json.loads(line)
            reply = getattr(side, request.pop("op"))(**request)
            channel.write(json.dumps(reply) + "\n")


class _Side:
    """The contestant's end: one method per op."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant = contestant
        self.call: Callable[[], Tensors] = dict
        self.to_disk = False

    def hello(self) -> dict[str, Any]:
        return {"versions": self.contestant.versions()}

    def fill(self, dataset: str, quick: bool) -> dict[str, Any]:
        self.contestant.data = experience.make(dataset, quick=quick)
        before = _resident_bytes()
        start = time.perf_counter()
        self.contestant.fill()
        seconds = time.perf_counter() - start
        return {
            "steps": self.contestant.stored_steps or self.contestant.data.num_steps,
            "step_bytes": self.contestant.data.step_bytes,
            "resident_bytes": _resident_bytes() - before,
            "nbytes": self.contestant.nbytes(),
            "fill_s": seconds,
        }

    def start(self, workload: dict[str, Any], warm_up_s: float) -> dict[str, Any]:
        work = workloads.Workload(**workload)
        method = getattr(self.contestant, work.kind, None)
        self.contestant.variant, self.contestant.delivered = self.contestant.setting, 1.0
        try:
            call = method(work) if method else None
        except NotMeasured as reason:
            return {"offered": True, "not_measured": str(reason)}
        if call is None:
            return {"offered": False}
        self.call, self.to_disk = call, work.to_disk
        stored = self.contestant.data.num_steps * self.contestant.data.step_bytes
        out = {name: np.asarray(tensor) for name, tensor in call().items()}
        wrong = workloads.check(work, self.contestant.data, out) if out else []
        gc.collect()
        spent: list[int] = []
        while sum(spent) < warm_up_s * 1e9:
            spent += self.round(len(spent) or 3)["ns"]
        return {
            "offered": True,
            "call_s": float(np.median(spent)) * 1e-9,
            "items": work.items * self.contestant.delivered,
            "bytes": work.items * self.contestant.delivered * (work.item_bytes or stored),
            "delivered_bytes": sum(array.nbytes for array in out.values()),
            "variant": self.contestant.variant,
            "wrong": wrong,
        }

    def round(self, calls: int, discard: int = 0) -> dict[str, Any]:
        """discard: calls done before timing, so that what a prefetcher made while the others had
        their round is not counted as speed."""
        call, clock = self.call, time.perf_counter_ns
        spent = [0] * calls
        gc.disable()
        for _ in range(discard):
            call()
        cpu = time.process_time()
        for k in range(calls):
            if self.to_disk:
                os.sync()
            start = clock()
            held = call()
            for tensor in held.values():
                tensor.data_ptr()
            spent[k] = clock() - start
        cpu = time.process_time() - cpu
        gc.enable()
        return {"ns": spent, "cpu_s": cpu}

    def stop(self) -> dict[str, Any]:
        self.contestant.close()
        self.call = dict
        return {}


def _resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class ContestantError(RuntimeError):
    """A contestant's process ended; the message is the last line it wrote."""


class Remote:
    """The referee's end: owns the process of one contestant."""

    def __init__(self, name: str, command: list[str], scratch: Path) -> None:
        self.name = name
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (lives as long as the process)
        path = os.pathsep.join(
            filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])
        )
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "BENCH_SCRATCH": str(scratch)},
        )

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Send one request and wait for its answer. Throws ContestantError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._process.wait()
            self._log.seek(0)
            last = [row.strip() for row in self._log if row.strip()][-1:] or ["no message"]
            raise ContestantError(f"{self.name} ended during {op!r}: {last[0][:300]}")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # It had ended before the request was written.
            self._process.stdin.close()
        self._process.wait(timeout=60)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()
