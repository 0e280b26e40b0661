"""ARC's files (github.com/fchollet/ARC-AGI): one JSON file a puzzle, in folders of sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import gear
from gear.train.tasks.puzzles.families import Grid
from gear.train.tasks.puzzles.puzzle import Pair, Puzzle

TRAINING = "training"
MOST_SIDE = 30


def read_sets(folder: Path) -> dict[str, list[Puzzle]]:
    """The sets below `folder` by name: each of its folders with JSON files, or `training`, the
    files of the folder itself. A file with several queries is as many puzzles.

    Raises InvalidArgument if there is no puzzle to train on, or a file holds none.
    """
    folders = [folder, *sorted(path for path in folder.glob("*") if path.is_dir())]
    found = {
        TRAINING if place == folder else place.name: [
            puzzle for path in sorted(place.glob("*.json")) for puzzle in read_file(path)
        ]
        for place in folders
        if any(place.glob("*.json"))
    }
    if TRAINING not in found:
        raise gear.InvalidArgument(
            f"[train] data.path={folder} holds no puzzles to learn from: give a folder with ARC's "
            f"JSON files, or one with a folder {TRAINING} of them and others to be scored on"
        )
    return found


def read_file(path: Path) -> list[Puzzle]:
    """`{"train": [{"input": [[0, 1], ...], "output": ...}, ...], "test": [...]}`"""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        shown = tuple(_pair(each) for each in held["train"])
        asked = [_pair(each) for each in held["test"]]
        if not shown or not asked:
            raise ValueError("no pair to learn from, or none to answer")
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise gear.InvalidArgument(
            f"[train] {path} is no puzzle of ARC: {type(error).__name__}: {error}: give a file "
            "with 'train' and 'test', lists of pairs of grids of colours 0 to 9, at most "
            f"{MOST_SIDE} cells a side"
        ) from error
    return [Puzzle(path.stem, shown, query) for query in asked]


def _pair(held: Any) -> Pair:
    return _grid(held["input"]), _grid(held["output"])


def _grid(rows: Any) -> Grid:
    cells = np.array(rows)
    if cells.ndim != 2 or cells.dtype.kind != "i" or not 0 < max(cells.shape) <= MOST_SIDE:
        raise ValueError(f"a grid of shape {cells.shape}")
    if not cells.size or cells.min() < 0 or cells.max() > 9:
        raise ValueError("a colour that is not 0 to 9")
    return cells.astype(np.uint8)
