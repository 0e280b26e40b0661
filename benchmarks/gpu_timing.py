"""Times of a GPU: the clock around work that it does by itself, and its kernels one by one."""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import machine
import torch

import gear


@dataclass(frozen=True)
class Gpu:
    """What is measured; device "cpu" rehearses without one: the figures mean nothing then.

    Attributes:
        device: of torch and of GEAR.
        share: sizes are multiplied by it; below 1 in a rehearsal.
    """

    device: str
    share: float = 1.0

    @property
    def rehearsal(self) -> bool:
        return self.device == "cpu"

    def size(self, full: int, least: int = 1) -> int:
        return max(least, int(full * self.share))

    def tier(self, name: str) -> str:
        return "host" if self.rehearsal else name

    def to_gpu(self, path: str | None = None) -> dict[str, Any]:
        """Arguments of a loader."""
        if self.rehearsal:
            return {"framework": "torch"}
        return {"device": self.device, "framework": "torch"} | ({"path": path} if path else {})

    def facts(self) -> dict[str, Any]:
        """Of machine and versions."""
        return machine.facts() | {
            "gear": gear.__version__,
            "torch": torch.__version__,
            "python": sys.version.split()[0],
            "rehearsal": self.rehearsal,
            "gpu": "none: a rehearsal" if self.rehearsal else torch.cuda.get_device_name(0),
        }

    def synchronize(self) -> None:
        if not self.rehearsal:
            torch.cuda.synchronize()

    def wall_us(self, work: Callable[[], Any], *, budget_s: float = 0.4, rounds: int = 5) -> float:
        """Microseconds of one call where calls follow each other: the median round's. What the host
        adds counts where the GPU waits for it."""
        if self.rehearsal:
            budget_s, rounds = 0.01, 1
        work()
        self.synchronize()
        began = time.perf_counter()
        work()
        self.synchronize()
        calls = max(2, min(2000, int(budget_s / rounds / (time.perf_counter() - began + 1e-9))))
        times = []
        for _ in range(rounds):
            self.synchronize()
            began = time.perf_counter()
            for _ in range(calls):
                work()
            self.synchronize()
            times.append((time.perf_counter() - began) / calls)
        return statistics.median(times) * 1e6

    def kernels(self, work: Callable[[], Any], calls: int) -> Kernels:
        """What ran on the GPU during `calls` calls, as the profiler saw it."""
        if self.rehearsal:
            work()
            return Kernels(calls)
        from torch.autograd import DeviceType  # type: ignore[attr-defined]
        from torch.profiler import ProfilerActivity, profile

        work()
        self.synchronize()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the profiler's, of cycles that are not used here
            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                for _ in range(calls):
                    work()
                self.synchronize()
        found = Kernels(calls)
        for event in profiler.events():
            if event.device_type == DeviceType.CUDA:
                found.add(event.name, event.time_range.start, event.time_range.end)
        return found


def gpu_for(program: str, *, rehearse: bool, share: float) -> Gpu | None:
    """What `program` measures: the GPU, or the CPU with a `share` of the sizes where it rehearses;
    None, and says so, where there is no GPU."""
    if rehearse:
        torch.set_num_threads(1)
        return Gpu("cpu", share)
    if torch.cuda.is_available():
        return Gpu("cuda")
    print(f"{program}: no GPU here; --rehearse runs without one", file=sys.stderr)
    return None


@dataclass
class Kernels:
    """Kernels and copies of `calls` equal calls."""

    calls: int
    spans: list[tuple[str, float, float]] = field(default_factory=list)  # name, begin, end in us

    def add(self, name: str, begin: float, end: float) -> None:
        self.spans.append((short_name(name), begin, end))

    def us(self, *parts: str) -> float:
        """Mean microseconds a call of those whose name contains one of `parts`; () is all."""
        spent = [e - b for name, b, e in self.spans if not parts or any(p in name for p in parts)]
        return sum(spent) / self.calls

    def median_us(self, part: str) -> float:
        """Of one kernel whose name contains `part`, whichever call it belongs to; 0 without any."""
        spent = [e - b for name, b, e in self.spans if part in name]
        return statistics.median(spent) if spent else 0.0

    def us_but(self, *parts: str) -> float:
        return self.us() - self.us(*parts) if parts else self.us()

    def by_name(self) -> dict[str, float]:
        """Mean microseconds a call, the longest first."""
        totals: dict[str, float] = defaultdict(float)
        for name, begin, end in self.spans:
            totals[name] += (end - begin) / self.calls
        return {n: round(t, 2) for n, t in sorted(totals.items(), key=lambda i: -i[1])}

    def median_span_us(self) -> float:
        """From the first kernel of a call to the end of its last: gaps between them count. 0 where
        the calls do not have equally many kernels."""
        per_call, rest = divmod(len(self.spans), self.calls)
        if rest or not per_call:
            return 0.0
        ordered = sorted(self.spans, key=lambda span: span[1])
        groups = [ordered[k : k + per_call] for k in range(0, len(ordered), per_call)]
        return statistics.median(max(e for *_, e in g) - g[0][1] for g in groups)


def short_name(name: str) -> str:
    """A kernel's name without template arguments, parameters and namespaces."""
    for unnamed in ("(anonymous namespace)::", "<unnamed>::"):
        name = name.replace(unnamed, "")
    head = name.removeprefix("void ").split("(")[0]
    depth, kept = 0, ""
    for letter in head:
        depth += letter == "<"
        kept += letter if depth == 0 else ""
        depth -= letter == ">"
    return kept.split("::")[-1].strip() or name


def event_pairs_us(pairs: list[tuple[Any, Any]]) -> list[float]:
    """Microseconds between the events of each pair, after a synchronisation."""
    return [first.elapsed_time(second) * 1e3 for first, second in pairs]
