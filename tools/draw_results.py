"""Draws the curves of docs/results.md from the evaluations that are kept in docs/results.

Usage: draw_results.py [FOLDER]; the default is docs, where the pictures are. A line of a CSV file
is an evaluation: the seed of the run, and columns of its metrics.csv.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

DOCS = Path(__file__).resolve().parents[1] / "docs"
DPI = 80

Curve = dict[str, list[float]]


def read(task: str) -> dict[str, Curve]:
    """The evaluations of docs/results/TASK.csv: seed -> column -> its values."""
    found: dict[str, Curve] = {}
    with (DOCS / "results" / f"{task}.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            curve = found.setdefault(row.pop("seed"), {})
            for column, value in row.items():
                curve.setdefault(column, []).append(float(value))
    return found


def returns(axes: Axes, task: str, title: str, wanted: float) -> None:
    """A line for each seed, and a dashed one at what is wanted."""
    for seed, curve in read(task).items():
        axes.plot(curve["step"], curve["eval_return"], marker="o", ms=3, label=f"seed {seed}")
    axes.axhline(wanted, ls="--", color="gray", lw=1)
    axes.set_title(title, fontsize=10)
    axes.set(xlabel="environment steps", ylabel="return")
    finish(axes)


def finish(axes: Axes) -> None:
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def control() -> Figure:
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    returns(left, "pendulum", "SAC on Pendulum-v1, mean of 5 greedy episodes", -300)
    returns(right, "cartpole", "Double DQN on CartPole-v1, mean of 5 greedy episodes", 400)
    right.set_ylim(0, 520)
    return figure


def hopper() -> Figure:
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    returns(left, "hopper", "SAC on Hopper-v5, mean of 10 greedy episodes", 2000)
    returns(right, "hopper_starts_10000", "the same, algo.learning_starts=10000", 2000)
    return figure


def puzzles_solved() -> Figure:
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    (curve,) = read("puzzles").values()
    for column in curve:
        if column != "step":
            percent = [100 * share for share in curve[column]]
            label = column.removesuffix("_solved")
            axes.plot(curve["step"], percent, marker="o", ms=3, label=label)
    axes.set_title("Grid puzzles, 600 of each set, seed 0", fontsize=10)
    axes.set(xlabel="updates", ylabel="puzzles solved, %", ylim=(-3, 103))
    finish(axes)
    return figure


def main(folder: Path) -> None:
    for figure in (control, hopper, puzzles_solved):
        path = folder / f"{figure.__name__}.png"
        figure().savefig(path, dpi=DPI)
        print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
