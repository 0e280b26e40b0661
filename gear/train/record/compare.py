"""`gear compare`: the mean of several runs, and how sure it is."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from omegaconf import OmegaConf
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import gear
from gear.train.config import of_the_run, written
from gear.train.installed import NO_PICTURE, has
from gear.train.record.folder import run_of
from gear.train.record.report import FINAL_EPISODES
from gear.train.record.resume import FREE_KEYS, MAKES_AN_ENVIRONMENT

RESAMPLES = 2000
POINTS = 200  # of a curve
MAY_DIFFER = FREE_KEYS | {"seed"}  # among repetitions

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """A run that has ended, whole or stopped.

    Attributes:
        word: which run it is (`record.folder`); None: of a version before there were words.
        env: what its environment is made by.
        settings: key -> value, but for the seed and what a run may change when it goes on.
        steps, returns: of its curve: at each episode's end, the mean of the last 10 returns.
    """

    path: Path
    word: str | None
    env: Mapping[str, Any]
    settings: Mapping[str, Any]
    seed: int
    final_return: float
    env_steps: int
    env_steps_per_s: float
    steps: Floats
    returns: Floats


def run(folders: Sequence[str]) -> int:
    """Prints the table and draws the plot; returns the exit code, 0.

    Raises InvalidArgument for runs that cannot be compared: of several environments; below one
    folder, of several settings, or two with one seed; and where one run is there twice.
    """
    console = Console()

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    for number, name in enumerate(folders):
        if name in folders[:number]:
            raise gear.InvalidArgument(f"[train] {name} is given twice: give each folder once")
    found = {name: read_runs(Path(name), say) for name in folders}
    check_alike(found)
    console.print(_table(found))
    for name, runs in found.items():
        lengths = {each.env_steps for each in runs}
        if len(lengths) > 1:
            say(
                f"warning: runs of {name} end after {min(lengths):,} to {max(lengths):,} steps: "
                "the returns are not of the same time, and the curve ends with the shortest"
            )
    plot = Path(folders[0]) / "compare.png"
    say(f"learning curves: {draw(found, plot) if has('matplotlib') else NO_PICTURE}")
    return 0


def read_runs(below: Path, say: Callable[[str], None] = print) -> list[Run]:
    """The runs below the folder that have ended and have an episode, by seed; `say` is told which
    are left out.

    Raises InvalidArgument if there is none, CorruptData for a file that no run wrote.
    """
    runs = []
    for path in sorted(below.rglob("summary.json")):
        try:
            found = _read(path)
        except gear.GearError:
            raise
        except Exception as error:  # whatever other content ends in
            raise gear.CorruptData(
                f"[train] {path.parent} is not as a run leaves its folder: "
                f"{type(error).__name__}: {error}; move it away"
            ) from error
        if isinstance(found, Run):
            runs.append(found)
        else:
            say(f"left out: {path.parent}: {found}")
    if not runs:
        raise gear.InvalidArgument(
            f"[train] no run below {below} has ended with an episode and a metrics.csv: give the "
            "folder of runs that act, made with logger=csv or logger=both; what learns from saved "
            "data has no returns to compare"
        )
    return sorted(runs, key=lambda each: each.seed)


def check_alike(found: Mapping[str, Sequence[Run]]) -> None:
    """InvalidArgument unless all runs are of one environment and each is there once, and those
    below a folder are repetitions: of the same settings, each with a seed of its own."""
    everyone = [each for runs in found.values() for each in runs]
    first = everyone[0]
    for each in everyone:
        if each.env != first.env:
            words = f"are of the environments {first.env} and {each.env}"
            _refuse(first, each, words, "runs of one environment")
    for number, one in enumerate(everyone):
        for other in everyone[:number]:
            if one.path.resolve() == other.path.resolve() or (one.word and one.word == other.word):
                _refuse(other, one, "are one run, which would count twice", "each run once")
    for runs in found.values():
        seen: dict[int, Run] = {}
        for each in runs:
            for key in sorted(each.settings.keys() | runs[0].settings.keys()):
                values = runs[0].settings.get(key), each.settings.get(key)
                if values[0] != values[1]:
                    words = f"have {key}={values[0]} and {key}={values[1]}"
                    _refuse(runs[0], each, words, "a folder for the runs of each setting")
            if each.seed in seen:
                words = f"have one seed, {each.seed}, and are no two samples"
                _refuse(seen[each.seed], each, words, "runs of other seeds")
            seen[each.seed] = each


def _refuse(one: Run, other: Run, what: str, give: str) -> NoReturn:
    raise gear.InvalidArgument(
        f"[train] {one.path} and {other.path} {what}: these cannot be compared; give {give}"
    )


def _read(path: Path) -> Run | str:
    """The run with this summary; a text: why it cannot be compared."""
    summary = json.loads(path.read_text(encoding="utf-8"))
    metrics, settings = path.with_name("metrics.csv"), path.with_name("config.yaml")
    if summary["final_return"] is None:
        return "no episode of its own has ended: it was short, or learns from saved data"
    if not metrics.is_file():
        return "it has no metrics.csv, which logger=csv and logger=both write"
    with metrics.open(newline="", encoding="utf-8") as file:
        episodes = [row for row in csv.DictReader(file) if row["return"]]  # or evaluations
    if not episodes:
        return "its metrics.csv has no episode"
    rows = [(float(row["step"]), float(row["return"])) for row in episodes]
    steps, returns = np.array(rows).T
    number = min(FINAL_EPISODES, len(returns))
    means = np.convolve(returns, np.ones(number) / number, "valid")
    config = written(settings.read_text(encoding="utf-8"), settings)
    env, values = OmegaConf.to_container(config.env), of_the_run(config)
    assert isinstance(env, dict)
    return Run(
        path.parent,
        run_of(path.parent),
        {key: env[key] for key in (*MAKES_AN_ENVIRONMENT, "frames")},
        {key: value for key, value in values.items() if key.split(".")[0] not in MAY_DIFFER},
        int(summary["seed"]),
        float(summary["final_return"]),
        int(summary["env_steps"]),
        float(summary["env_steps_per_s"]),
        steps[number - 1 :],
        means,
    )


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
    path.unlink(missing_ok=True)  # a link would be written through
    figure.savefig(path, dpi=120)
    return path


def _table(found: dict[str, list[Run]]) -> Table:
    table = Table("run", "seed", "return, last 10 episodes", "steps", "steps/s")
    for folder, runs in found.items():
        for each in runs:
            table.add_row(
                escape(str(each.path)),
                str(each.seed),
                f"{each.final_return:,.1f}",
                f"{each.env_steps:,}",
                f"{each.env_steps_per_s:,.0f}",
            )
        returns = np.array([each.final_return for each in runs])
        low, high = interval(returns)
        table.add_row(
            f"[bold]mean of {escape(folder)}[/]",
            f"{len(runs)} runs",
            f"[bold]{returns.mean():,.1f}[/] ({low:,.1f} to {high:,.1f})",
            "",
            "",
            end_section=True,
        )
    return table
