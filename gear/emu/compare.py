"""One program as two jobs: what steps, operations and memory came to in each."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gear.emu.report import Operation, Report, read_report
from gear.emu.start import ranks_of
from gear.errors import InvalidArgument


@dataclass(frozen=True)
class Compared:
    """The reports of one rank, of the first run and of the second."""

    rank: int
    first: Report
    second: Report

    @property
    def step(self) -> float:
        """By which part of the first's median the second's step is longer."""
        return _median(self.second) / _median(self.first) - 1

    @property
    def memory(self) -> float | None:
        """The same of the most that torch's allocator has held; None: without a GPU."""
        first, second = self.first.allocator_peak_bytes, self.second.allocator_peak_bytes
        return second / first - 1 if first and second is not None else None

    @property
    def worst(self) -> float:
        """The larger difference of step and allocator, 0 or more."""
        return max(abs(self.step), abs(self.memory or 0.0))

    def __str__(self) -> str:
        lines = [f"rank {self.rank}: step {self.step:+.2%}", *_steps(self)]
        lines.append("operations of a step: calls, bytes; first | second: modelled ms, waited ms")
        for first, second in _pairs(self.first, self.second):
            calls, size = _a_step(first, self.first)
            modelled = [first.modelled_s / self.first.steps, second.modelled_s / self.second.steps]
            waited = [first.waited_s / self.first.steps, second.waited_s / self.second.steps]
            lines.append(
                f"  {first.name:<15}{calls:8g}{size:15.12g}"
                f"  {_both(*modelled, unit=1e-3):>20}  {_both(*waited, unit=1e-3):>20}"
            )
        return "\n".join([*lines, *_memory(self)])


def compare(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> tuple[Compared, ...]:
    """The ranks that were real in both runs, the one whose steps or memory differ most first.

    Args:
        first: the folder of a ``gear emu run --out``; of real ranks, where one measures how true
            the other is.
        second: that of another run of the same program, as a job of as many ranks.

    Raises:
        InvalidArgument: for folders of no such run, jobs of several sizes, runs that have no real
            rank in common, have taken fewer than four steps, or are of different programs: by
            their names, and by the operations of a step.
        CorruptData, IoError: as `read_report`, and where a job cannot be read.
    """
    folders = Path(first), Path(second)
    (ranks, real), (other_ranks, other_real) = (ranks_of(folder) for folder in folders)
    if ranks != other_ranks:
        raise InvalidArgument(
            f"[emu] {first} is a job of {ranks} ranks and {second} one of {other_ranks}:"
            " compare jobs of as many"
        )
    reports = _reports(folders[0], real), _reports(folders[1], other_real)
    common = sorted(reports[0].keys() & reports[1].keys())
    if not common:
        raise InvalidArgument(
            f"[emu] {first} has reports of the real ranks {_listed(reports[0])} and {second} of"
            f" {_listed(reports[1])}: compare runs with a rank that both have"
        )
    pairs = [Compared(rank, reports[0][rank], reports[1][rank]) for rank in common]
    for pair in pairs:
        _check_same(pair, folders)
    return tuple(sorted(pairs, key=lambda pair: pair.worst, reverse=True))


def _reports(folder: Path, real: Sequence[int]) -> dict[int, Report]:
    files = {rank: folder / f"rank-{rank}.json" for rank in real}
    return {rank: read_report(file) for rank, file in files.items() if file.exists()}


def _check_same(pair: Compared, folders: tuple[Path, Path]) -> None:
    both = ((folders[0], pair.first), (folders[1], pair.second))
    for folder, report in both:
        if report.step_s is None:
            raise InvalidArgument(
                f"[emu] {folder}: rank {pair.rank} has taken fewer than four steps: run more of"
                " them, or tell of them by gear.emu.step()"
            )
    named = [report.program for _, report in both]
    if named[0] != named[1]:
        raise InvalidArgument(
            f"[emu] {folders[0]} is a run of {named[0]!r} and {folders[1]} one of {named[1]!r}:"
            " compare runs of one program"
        )
    by_name = [{one.name: one for one in report.in_steps} for _, report in both]
    for name in sorted(by_name[0].keys() | by_name[1].keys()):
        calls, size = _a_step(by_name[0].get(name), pair.first)
        other_calls, other_size = _a_step(by_name[1].get(name), pair.second)
        if not (math.isclose(calls, other_calls) and math.isclose(size, other_size)):
            raise InvalidArgument(
                f"[emu] a step of {folders[0]} has {calls:g} calls of {name} with {size:.12g} bytes"
                f" and one of {folders[1]} {other_calls:g} with {other_size:.12g}: compare runs of"
                " one program with the same arguments, and as many steps if they are not all alike"
            )


def _a_step(operation: Operation | None, report: Report) -> tuple[float, float]:
    if operation is None:
        return 0.0, 0.0
    return operation.calls / report.steps, operation.bytes / report.steps


def _pairs(first: Report, second: Report) -> Iterator[tuple[Operation, Operation]]:
    by_name = {one.name: one for one in second.in_steps}
    return ((one, by_name[one.name]) for one in first.in_steps)


def _median(report: Report) -> float:
    assert report.step_s is not None
    return report.step_s[1]


def _steps(pair: Compared) -> Iterator[str]:
    for title, report in (("first", pair.first), ("second", pair.second)):
        assert report.step_s is not None
        low, median, high = (f"{seconds * 1e3:.3f}" for seconds in report.step_s)
        yield (
            f"  {title:<7}{report.emulated} emulated, {report.steps} steps: median {median} ms,"
            f" half of them {low} to {high} ms"
        )


def _memory(pair: Compared) -> Iterator[str]:
    first, second = pair.first, pair.second
    if first.allocator_peak_bytes is not None and second.allocator_peak_bytes is not None:
        held = _both(first.allocator_peak_bytes, second.allocator_peak_bytes, unit=2**20)
        change = "" if pair.memory is None else f": {pair.memory:+.2%}"
        yield f"  most of torch's allocator, MiB: {held}{change}"
    held = _both(first.process_peak_bytes, second.process_peak_bytes, unit=2**20)
    yield f"  most of the host, MiB: {held}"


def _both(first: float, second: float, *, unit: float) -> str:
    return f"{first / unit:.3f} | {second / unit:.3f}"


def _listed(reports: dict[int, Report]) -> str:
    return ", ".join(map(str, sorted(reports))) or "none"
