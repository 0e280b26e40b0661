"""What a run of puzzles learns from and what it is scored on, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import gear
from gear.train.config import Puzzles
from gear.train.tasks.puzzles.arc import TRAINING, read_sets
from gear.train.tasks.puzzles.puzzle import Puzzle, generate


@dataclass(frozen=True)
class Sets:
    """Of all ranks.

    Attributes:
        origin: where they come from, in words.
        size: how many puzzles are learned from.
        given: these, where they come from files; else each is generated when it is asked for.
        scored: what the run is scored on, by the name of the set.
        left_out: puzzles of files with a grid larger than `data.most`.
    """

    config: Puzzles
    seed: int
    origin: str
    size: int
    given: tuple[Puzzle, ...] = ()
    scored: Mapping[str, tuple[Puzzle, ...]] = field(default_factory=dict)
    left_out: int = 0

    def learned(self, number: int) -> Puzzle:
        """Puzzle `number` of those to learn from, 0 to `size` - 1."""
        if self.given:
            return self.given[number]
        return _generated(self.config, self.seed, 0, number)

    def __str__(self) -> str:
        scored = ", ".join(f"{len(puzzles):,} {name}" for name, puzzles in self.scored.items())
        left = f", {self.left_out:,} that are too large left out" if self.left_out else ""
        return f"{self.size:,} puzzles {self.origin}; scored on {scored}{left}"


def make_sets(config: Puzzles, seed: int) -> Sets:
    """Generated puzzles, or those of ARC's files at `data.path`.

    Generated ones are scored on further puzzles of the same rules (`seen_families`), of the same
    families with parameters that training does not have (`unseen_parameters`), and of families that
    it does not have (`unseen_families`). Of files, the demonstrations of the folder `training` are
    learned from, and each folder is a set.
    """
    if config.path is not None:
        return _of_files(config, seed, Path(config.path))
    names = ["seen_families", "unseen_parameters", "unseen_families"]
    scored = {
        name: tuple(_generated(config, seed, kind, n) for n in range(config.eval_puzzles))
        for kind, name in enumerate(names, 1)
        if kind < 3 or config.unseen_families
    }
    origin = f"of the families {', '.join(config.families)}"
    return Sets(config, seed, origin, config.puzzles, scored=scored)


def _generated(config: Puzzles, seed: int, kind: int, number: int) -> Puzzle:
    """kind: 0 to learn from, 1 to 3 the sets that are scored, in the order of their names."""
    return generate(
        (seed, kind, number),
        config.unseen_families if kind == 3 else config.families,
        unseen={2: True, 3: None}.get(kind, False),
        least=config.least,
        most=config.most,
        pairs=config.pairs,
    )


def _of_files(config: Puzzles, seed: int, path: Path) -> Sets:
    found = read_sets(path)
    fitting = {
        name: tuple(each for each in puzzles if each.largest <= config.most)
        for name, puzzles in found.items()
    }
    left_out = sum(map(len, found.values())) - sum(map(len, fitting.values()))
    # A rule is shown by two pairs at least, and the answers are not learned from.
    by_name = {each.name: each for each in fitting[TRAINING] if len(each.demonstrations) > 1}
    learned = tuple(
        Puzzle(each.name, each.demonstrations[:-1], each.demonstrations[-1])
        for each in by_name.values()
    )
    if not learned:
        largest = Counter(each.largest for each in found[TRAINING])
        raise gear.InvalidArgument(
            f"[train] data.most={config.most}: no puzzle of {path}/{TRAINING} has grids that small "
            f"and two pairs; the smallest has {min(largest)} cells a side: give data.most=30"
        )
    scored = {name: puzzles for name, puzzles in fitting.items() if puzzles}
    origin = f"of {path}"
    return Sets(config, seed, origin, len(learned), learned, scored, left_out)
