"""`gear eval` of a run of grid puzzles: how well it answers each of its sets, and what it says."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from gear.train.algo.puzzles import SCORES, PuzzleSolver
from gear.train.config import Puzzles
from gear.train.installed import NO_PICTURE, has
from gear.train.policies import film
from gear.train.policies.trained import Trained
from gear.train.tasks.puzzles import canvas
from gear.train.tasks.puzzles.puzzle import Puzzle
from gear.train.tasks.puzzles.sets import Sets

SHOWN = 2  # puzzles of each set in the picture


@dataclass(frozen=True)
class Answered:
    """A puzzle and the colours that were predicted, int64 [S, S], OUTSIDE where there is none."""

    of: str
    puzzle: Puzzle
    answer: torch.Tensor
    solved: bool


def score(trained: Trained, out: Path, console: Console) -> list[Path]:
    """Prints the table of the run's sets and of the families in them; returns what was written: it,
    and a picture of grids."""
    algorithm, data = trained.algorithm, trained.config.data
    assert isinstance(algorithm, PuzzleSolver)
    assert isinstance(data, Puzzles)
    sets = algorithm.look()
    table = Table("set", "puzzles", *(name.replace("_", " ") for name in SCORES))
    out.mkdir(parents=True, exist_ok=True)
    written = [out / "scores.csv", out / "puzzles.png"]
    with written[0].open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["set", "family", "puzzles", *SCORES])
        for name, family, puzzles in _parts(sets):
            solved, accuracy, difference = values = algorithm.score(puzzles)
            writer.writerow([name, family, len(puzzles), *values])
            row = (f"{solved:.1%}", f"{accuracy:.1%}", f"{difference:.1f}")
            table.add_row(f"  {family}" if family else name, f"{len(puzzles):,}", *row)
    console.print(table)
    if not has("matplotlib"):
        console.print(f"picture: {NO_PICTURE}", highlight=False, markup=False, soft_wrap=True)
        return written[:1]
    film.grids(written[1], [_row(each) for each in _answered(algorithm, data, sets.scored)])
    return written


def _parts(sets: Sets) -> Iterator[tuple[str, str, Sequence[Puzzle]]]:
    """Each set, its name, no family and its puzzles; then its families, where they are known."""
    for name, puzzles in sets.scored.items():
        yield name, "", puzzles
        if sets.given:
            continue
        for family in dict.fromkeys(each.name for each in puzzles):
            yield name, family, [each for each in puzzles if each.name == family]


def _answered(
    algorithm: PuzzleSolver, data: Puzzles, scored: Mapping[str, Sequence[Puzzle]]
) -> Iterator[Answered]:
    """The first SHOWN puzzles of each set."""
    for name, puzzles in scored.items():
        some = puzzles[:SHOWN]
        asked = canvas.ask_of(some, data.pairs, data.most)
        answers = algorithm.answer(asked).cpu()
        for puzzle, answer, true in zip(some, answers, asked.answers, strict=True):
            yield Answered(name, puzzle, answer, bool((answer == true).all()))


def _row(each: Answered) -> tuple[str, list[tuple[str, film.Array]]]:
    """Its title, and its grids with theirs."""
    shown = [
        (title, grid)
        for pair in each.puzzle.demonstrations[:SHOWN]
        for title, grid in zip(("input", "output"), pair, strict=True)
    ]
    given, wanted = each.puzzle.query
    answer = np.where(each.answer == canvas.OUTSIDE, -1, each.answer)
    height, width = (max(1, int((answer >= 0).any(axis).sum())) for axis in (1, 0))
    verdict = "answer: solved" if each.solved else "answer: wrong"
    last = [("query", given), (verdict, answer[:height, :width]), ("wanted", wanted)]
    return f"{each.of}: {each.puzzle.name}", [*shown, *last]
