"""One program as jobs that differ in a few values, one after the other."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gear.emu.job import Job
from gear.emu.launched import place
from gear.emu.report import Report, read_report
from gear.emu.start import processes
from gear.errors import InvalidArgument

Values = Mapping[str, str]  # of what is varied, by name
OF_STEPS = ("step ms", "half of them", "exposed ms", "hidden ms", "extrapolated", "of the first")


@dataclass(frozen=True)
class Outcome:
    """Of one run.

    Args:
        values: what was varied, as it was given.
        code: the exit code of the first rank that failed, 0 if none did.
        report: of the rank here whose steps were longest; None: no rank has left one.
        was_told: something by a signal, so that no other run has the time, or is wanted.
    """

    values: Values
    code: int
    report: Report | None
    was_told: bool = False

    @property
    def step_s(self) -> tuple[float, float, float] | None:
        """The quartiles of a step, in seconds; None of a run that failed, was told to end, or took
        too few of them."""
        is_whole = not self.code and not self.was_told
        return self.report.step_s if is_whole and self.report is not None else None


def combined(varied: Mapping[str, Sequence[str]]) -> list[Values]:
    """Each value with each of the other names; the last name changes fastest."""
    values = itertools.product(*varied.values())
    return [dict(zip(varied, one, strict=True)) for one in values]


def check(jobs: Sequence[Job], all_values: Sequence[Values]) -> None:
    """Refuses what could not run one after the other.

    Raises:
        InvalidArgument: for two runs whose reports would be in one folder, and a launcher that has
            started this process as one of several real ranks: their runs would not be in step.
    """
    folders = [folder_of(values) for values in all_values]
    for folder in folders:
        if folders.count(folder) > 1:
            raise InvalidArgument(
                f"[emu] two of the runs are both {folder}, by the names of their folders: vary"
                " values that differ there"
            )
    for job in jobs:
        if len(job.real) > 1 and place(job, os.environ):
            raise InvalidArgument(
                f"[emu] what if, as one of the real ranks {job.real_in_words} that a launcher has"
                " started: start it by itself, or a launcher for each gear emu run"
            )


def run_as(values: Values, job: Job, command: Sequence[str], out: Path) -> Outcome:
    """Runs `command` as `job`, with its reports in the folder of `out` that these values name.

    Raises:
        InvalidArgument, IoError: as `gear.emu.start`.
    """
    folder = out / folder_of(values)
    with processes(job, command, folder) as ranks:
        code = ranks.follow()
        was_told = ranks.are_told
    placed = place(job, os.environ)
    files = (folder / f"rank-{rank}.json" for rank in ([placed["RANK"]] if placed else job.real))
    reports = [read_report(file) for file in files if file.exists()]
    longest = max(reports, key=lambda one: one.step_s[1] if one.step_s else 0.0, default=None)
    return Outcome(values, code, longest, was_told)


def folder_of(values: Values) -> str:
    """As ``ranks=64,nic.gb_per_s=12.5``."""
    return ",".join(
        f"{name}={re.sub('[^-.:+A-Za-z0-9]', '_', one)}" for name, one in values.items()
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """A line for each run: its values, the median of a step, half of all steps, what communication
    of a step was exposed and hidden, which part of the modelled time is extrapolated, and the step
    as a multiple of that of the first run that has one."""
    first = next((one.step_s for one in outcomes if one.step_s is not None), None)
    rows = [[*outcomes[0].values, *OF_STEPS]]
    rows += [[*one.values.values(), *_figures(one, first)] for one in outcomes]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.rjust, row, widths)).rstrip() for row in rows)


def _figures(outcome: Outcome, first: tuple[float, float, float] | None) -> list[str]:
    step_s, report = outcome.step_s, outcome.report
    if step_s is None or first is None or report is None:
        why = "fewer than 4 steps" if report else "no group"
        if outcome.code or outcome.was_told:
            why = f"exit code {outcome.code}" if outcome.code else "ended by a signal"
        return [why, *[""] * (len(OF_STEPS) - 1)]
    low, median, high = (f"{seconds * 1e3:.3f}" for seconds in step_s)
    return [
        median,
        f"{low} to {high}",
        "-" if report.unseen_calls else f"{report.exposed_a_step_s * 1e3:.3f}",
        "-" if report.unseen_calls else f"{report.hidden_a_step_s * 1e3:.3f}",
        f"{report.extrapolated:.0%}",
        f"{step_s[1] / first[1]:.3f}",
    ]
