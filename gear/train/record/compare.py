"""`gear compare`: the mean of several runs, and how sure it is."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import gear
from gear.train.record.report import FINAL_EPISODES

RESAMPLES = 2000
POINTS = 200  # of a curve

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """A run that has ended, whole or stopped.

    Attributes:
        steps, returns: of its curve: at each episode's end, the mean of the last 10 returns.
    """

    path: Path
    seed: int
    final_return: float
    env_steps: int
    env_steps_per_s: float
    steps: Floats
    returns: Floats


def run(folders: Sequence[str]) -> int:
    """Prints the table and draws the plot; returns the exit code, 0."""
    found = {folder: read_runs(Path(folder)) for folder in folders}
    console = Console()
    console.print(_table(found))
    for folder, runs in found.items():
        lengths = {each.env_steps for each in runs}
        if len(lengths) > 1:
            console.print(
                f"warning: runs of {folder} end after {min(lengths):,} to {max(lengths):,} steps: "
                "the returns are not of the same time, and the curve ends with the shortest",
                soft_wrap=True,
            )
    plot = draw(found, Path(folders[0]) / "compare.png")
    console.print(f"learning curves: {plot}", highlight=False, soft_wrap=True)
    return 0


def read_runs(folder: Path) -> list[Run]:
    """The runs below `folder` that have ended and have an episode, by seed.

    Raises InvalidArgument if there is none.
    """
    runs = []
    for path in sorted(folder.rglob("summary.json")):
        summary = json.loads(path.read_text(encoding="utf-8"))
        metrics = path.with_name("metrics.csv")
        if summary["final_return"] is None or not metrics.is_file():
            continue
        with metrics.open(newline="", encoding="utf-8") as file:
            episodes = [row for row in csv.DictReader(file) if row["return"]]  # or evaluations
        rows = [(float(row["step"]), float(row["return"])) for row in episodes]
        steps, returns = np.array(rows).T
        number = min(FINAL_EPISODES, len(returns))
        means = np.convolve(returns, np.ones(number) / number, "valid")
        runs.append(
            Run(
                path.parent,
                summary["seed"],
                summary["final_return"],
                summary["env_steps"],
                summary["env_steps_per_s"],
                steps[number - 1 :],
                means,
            )
        )
    if not runs:
        raise gear.InvalidArgument(
            f"[train] no run below {folder} has ended with an episode and a metrics.csv: give the "
            "folder of runs that have, made with logger=csv or logger=both"
        )
    return sorted(runs, key=lambda each: each.seed)


def interval(values: Floats) -> tuple[Floats, Floats]:
    """95 % interval of the mean over the first axis, by the percentile bootstrap.

    With a handful of runs its ends are rough, and not the runs' spread (Agarwal et al. 2021,
    arXiv:2108.13264).
    """
    picks = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.percentile(values[picks].mean(1), [2.5, 97.5], axis=0)
    return low, high


def curve(runs: Sequence[Run]) -> tuple[Floats, Floats]:
    """(steps [n], returns [runs, n]): all runs at the same steps, as far as each of them goes."""
    first, last = max(each.steps[0] for each in runs), min(each.steps[-1] for each in runs)
    steps = np.linspace(first, max(first, last), POINTS)
    return steps, np.array([np.interp(steps, each.steps, each.returns) for each in runs])


def draw(found: dict[str, list[Run]], path: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for folder, runs in found.items():
        steps, returns = curve(runs)
        (line,) = axes.plot(steps, returns.mean(0), label=f"{folder}, {len(runs)} runs")
        axes.fill_between(steps, *interval(returns), alpha=0.25, color=line.get_color())
    title = f"mean of the runs and its 95 % interval; each: mean of {FINAL_EPISODES} episodes"
    axes.set(xlabel="environment steps", ylabel="return", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    return path


def _table(found: dict[str, list[Run]]) -> Table:
    table = Table("run", "seed", "return, last 10 episodes", "steps", "steps/s")
    for folder, runs in found.items():
        for each in runs:
            table.add_row(
                str(each.path),
                str(each.seed),
                f"{each.final_return:,.1f}",
                f"{each.env_steps:,}",
                f"{each.env_steps_per_s:,.0f}",
            )
        returns = np.array([each.final_return for each in runs])
        low, high = interval(returns)
        table.add_row(
            f"[bold]mean of {folder}[/]",
            f"{len(runs)} runs",
            f"[bold]{returns.mean():,.1f}[/] ({low:,.1f} to {high:,.1f})",
            "",
            "",
            end_section=True,
        )
    return table
