"""What the steps of this process, and their communication, came to."""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

from gear.emu import trace
from gear.emu.gpu import group_bytes, takes_no_room
from gear.emu.library import load, tallies
from gear.emu.models.curve import BASES
from gear.emu.models.spread import spread
from gear.emu.present import present
from gear.emu.steps import Tallies, around, durations, sharded
from gear.emu.text_file import write_whole
from gear.errors import CorruptData, IoError

SPLITTING = ("reduce_scatter", "all_to_all", "all_gather")  # in each step: of split parameters


@dataclass(frozen=True)
class Operation:
    """One operation, in all emulated groups of this process.

    Args:
        name: of gear.emu.OPERATIONS.
        calls: that were made.
        bytes: of all of them, as OPERATIONS counts.
        seconds: that the model says, each call alone on its links; by BASES.
        waited_s: seconds that callers waited: what no computation hid.
        late_calls: whose values were there after the modelled end: the model is too fast for this
            machine, and the job took longer than modelled.
        late_s: seconds by which they were.
        unseen_calls: of tensors on GPUs, whose streams wait for each other: their waits and ends
            are in none of the figures above.
    """

    name: str
    calls: int
    bytes: int
    seconds: dict[str, float]
    waited_s: float
    late_calls: int
    late_s: float
    unseen_calls: int = 0

    @property
    def modelled_s(self) -> float:
        """Seconds that the model says."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class Report:
    """Of all operations, by name, and of the steps.

    Args:
        steps: that were taken, but the first two, in which frameworks prepare what all others use.
        in_steps: the operations of these steps alone.
        step_s: the median of a step, in seconds, and its quartiles; None with fewer than two.
        emulated: how many ranks of the job are.
        sharded: what has split the parameters over ranks, as far as that is seen: their other
            shards exist nowhere, and a loss means nothing. Empty: each rank has them whole.
        process_peak_bytes: the most memory of the host that this process has held.
        allocator_peak_bytes: the most that torch's allocator has held on the GPU; None without one.
            What NCCL would hold comes on top of it.
        program: the name of its file.
        untraced: operations and waits that the trace has no room for: it has the first ones.
        takes_no_room: operations on GPUs took no room from what was computed beside them, since
            the links do not say what NCCL's kernels take.
        group_bytes: of a GPU that NCCL would hold for each group that has operations there; None:
            the links do not say it.
    """

    operations: tuple[Operation, ...]
    steps: int
    step_s: tuple[float, float, float] | None
    emulated: int = 0
    sharded: str = ""
    process_peak_bytes: int = 0
    allocator_peak_bytes: int | None = None
    in_steps: tuple[Operation, ...] = ()
    program: str = ""
    untraced: int = 0
    takes_no_room: bool = False
    group_bytes: int | None = None

    @property
    def modelled_s(self) -> float:
        """Seconds that the model says, of all operations."""
        return sum(one.modelled_s for one in self.operations)

    @property
    def modelled_interval_s(self) -> tuple[float, float]:
        """Between which those are, where this job differs from the model as nine of ten published
        tables do; what was measured or given stands."""
        ends = [0.0, 0.0]
        for one in self.operations:
            factors = spread(one.bytes / max(1, one.calls))
            for basis, seconds in one.seconds.items():
                for end, factor in enumerate(factors):
                    ends[end] += seconds * (factor if basis in ("published", "extrapolated") else 1)
        return ends[0], ends[1]

    @property
    def exposed_s(self) -> float:
        """Seconds that callers waited for operations."""
        return sum(one.waited_s for one in self.operations)

    @property
    def hidden_s(self) -> float:
        """Seconds of operations that computation hid."""
        return max(0.0, self.modelled_s - self.exposed_s)

    @property
    def unseen_calls(self) -> int:
        """Calls of which it is not known who waited for them, and for how long."""
        return sum(one.unseen_calls for one in self.operations)

    @property
    def extrapolated(self) -> float:
        """The share of `modelled_s` that rests on extrapolation; 0 of nothing."""
        seconds = sum(one.seconds["extrapolated"] for one in self.operations)
        return seconds / self.modelled_s if self.modelled_s else 0.0

    @property
    def exposed_a_step_s(self) -> float:
        """Seconds of a step, on the mean, that callers waited for operations."""
        return sum(one.waited_s for one in self.in_steps) / max(1, self.steps)

    @property
    def hidden_a_step_s(self) -> float:
        """Seconds of operations of a step, on the mean, that computation hid."""
        modelled = sum(one.modelled_s for one in self.in_steps) / max(1, self.steps)
        return max(0.0, modelled - self.exposed_a_step_s)

    @property
    def of_losses(self) -> str:
        """What a loss of this process is worth."""
        if not self.emulated:
            return "losses are the job's: all of its ranks are real"
        if self.sharded:
            return (
                f"LOSSES MEAN NOTHING: {self.sharded} has split the parameters, and the shards of"
                " emulated ranks exist nowhere"
            )
        for one in self.operations:
            if one.name in SPLITTING and 0 < self.steps < one.calls:
                return (
                    f"losses may mean nothing: each step had {one.name}, as where parameters are"
                    " split, and the shards of emulated ranks exist nowhere"
                )
        return (
            "losses are those of ranks that hold copies of the real ranks' data, if each has the"
            " whole model, and nothing else was seen"
        )

    def __str__(self) -> str:
        lines = ["operation        calls         bytes  modelled ms  waited ms    late  basis"]
        for one in self.operations:
            bases = "+".join(name for name, seconds in one.seconds.items() if seconds)
            lines.append(
                f"{one.name:<15}{one.calls:7d}{one.bytes:14d}"
                f"{one.modelled_s * 1e3:13.3f}{one.waited_s * 1e3:11.3f}"
                f"{one.late_calls:8d}  {bases or '-'}"
            )
        if self.step_s is not None:
            low, median, high = (f"{seconds * 1e3:.3f}" for seconds in self.step_s)
            of_step = (
                ""
                if self.unseen_calls
                else f"; of a step {self.exposed_a_step_s * 1e3:.3f} ms of communication exposed"
                f" and {self.hidden_a_step_s * 1e3:.3f} ms hidden"
            )
            lines.append(
                f"{self.steps} steps: median {median} ms, half of them {low} to {high} ms{of_step}"
            )
        seen = (
            f"what is exposed of it is not known: {self.unseen_calls} calls were waited for by"
            " streams of GPUs"
            if self.unseen_calls
            else f"{self.exposed_s * 1e3:.3f} ms exposed, {self.hidden_s * 1e3:.3f} ms hidden"
        )
        lines.append(
            f"communication: {seen}; {self.extrapolated:.0%} of the modelled time is extrapolated"
        )
        least, most = self.modelled_interval_s
        if least < most:
            lines.append(
                f"{self.modelled_s * 1e3:.3f} ms modelled in all: {least * 1e3:.3f} to"
                f" {most * 1e3:.3f} ms if NCCL lies here from the model as nine of ten published"
                " tables do"
            )
        if self.takes_no_room:
            lines.append(
                "what is computed beside communication is too fast: the links do not say what"
                " NCCL's kernels take of a GPU, which gear emu calibrate measures"
            )
        if late := sum(one.late_calls for one in self.operations):
            lines.append(
                f"{late} calls ended {sum(one.late_s for one in self.operations) * 1e3:.3f} ms late"
                " in all: real ranks took longer for them here than the model says"
            )
        if self.untraced:
            lines.append(f"the trace lacks the last {self.untraced} operations and waits")
        memory = f"memory: {self.process_peak_bytes / 2**20:.0f} MiB of the host at most"
        if self.allocator_peak_bytes is not None:
            memory += f", {self.allocator_peak_bytes / 2**20:.0f} MiB of torch's allocator"
        if self.group_bytes is None:
            lines.append(memory + "; what NCCL would hold is not in it")
        else:
            lines.append(
                f"{memory}; NCCL would hold {self.group_bytes / 2**20:.0f} MiB of the GPU more for"
                " each group that has operations there, as calibrated"
            )
        lines.append(self.of_losses)
        lines.append(
            "not modelled: ranks that compute for different times, other jobs on the links, power,"
            " and what goes round process groups"
        )
        return "\n".join(lines)


def report() -> Report:
    """Of this process, until now."""
    steps, job = durations(), present()
    is_held = job is None or job.model != "none"
    operations = _operations({}, tallies(), is_held)
    on_gpus = any(one.unseen_calls for one in operations)
    return Report(
        operations=operations,
        takes_no_room=on_gpus and is_held and takes_no_room(),
        steps=len(steps),
        step_s=_quartiles(steps),
        in_steps=_operations(*around(), is_held),
        program=Path(sys.argv[0]).name if sys.argv else "",
        untraced=trace.untraced(),
        emulated=job.ranks - len(job.real) if job else 0,
        sharded=sharded(),
        process_peak_bytes=_most_held(),
        allocator_peak_bytes=_allocated(),
        group_bytes=group_bytes() if on_gpus else None,
    )


def read_report(path: str | os.PathLike[str]) -> Report:
    """Of a file that a rank wrote as it ended.

    Raises:
        IoError: where it cannot be read.
        CorruptData: for another file.
    """
    try:
        said = json.loads(Path(path).read_text(encoding="utf-8"))
        for name in ("operations", "in_steps"):
            said[name] = tuple(Operation(**one) for one in said.pop(name))
        step_s = said.pop("step_s")
        return Report(step_s=tuple(step_s) if step_s else None, **said)
    except OSError as error:
        raise IoError(error.errno, f"[emu] the report {path} cannot be read: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptData(f"[emu] {path} is no report of gear.emu: {error}") from None


def _operations(before: Tallies, after: Tallies, is_held: bool) -> tuple[Operation, ...]:
    """What came to `before` since; late is nothing that no model holds."""
    return tuple(
        _operation(name, _since(before[name], told) if name in before else told, is_held)
        for name, told in sorted(after.items())
        if name not in before or told["calls"] > before[name]["calls"]
    )


def _since(before: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    seconds = [one - other for one, other in zip(told["seconds"], before["seconds"], strict=True)]
    return {name: told[name] - before[name] for name in told if name != "seconds"} | {
        "seconds": seconds
    }


def _operation(name: str, told: Mapping[str, Any], is_held: bool) -> Operation:
    return Operation(
        name,
        told["calls"],
        told["bytes"],
        dict(zip(BASES, told["seconds"], strict=False)),  # and what no curve said
        told["waited_s"],
        told["late_calls"] if is_held else 0,
        told["late_s"] if is_held else 0.0,
        told["unseen_calls"],
    )


def _most_held() -> int:
    """Bytes of this program: what getrusage says is as well of what it was before."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def _allocated() -> int | None:
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    return sum(torch.cuda.max_memory_allocated(one) for one in range(torch.cuda.device_count()))


def _quartiles(steps: list[float]) -> tuple[float, float, float] | None:
    if len(steps) < 2:
        return None
    low, median, high = quantiles(steps, n=4, method="inclusive")
    return low, median, high


@functools.cache
def write_at_exit(rank: int) -> None:
    """The report of this rank, as JSON, and what a trace needs, into the folder that
    ``GEAR_EMU_LOG`` names, if it does."""
    folder = os.environ.get("GEAR_EMU_LOG")
    if folder:
        load().begin_history()
        atexit.register(_write, Path(folder), rank)


def _write(folder: Path, rank: int) -> None:
    """Or says what it would have written: the program has ended well."""
    came_to = report()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"rank-{rank}.json", json.dumps(asdict(came_to), indent=1) + "\n")
        trace.write(folder, rank)
    except OSError as error:
        print(f"gear emu: {error}\n{came_to}", file=sys.stderr, flush=True)
