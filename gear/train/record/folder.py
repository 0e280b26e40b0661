"""The folder of a run: the word that names its run, and what may be written there.

    RUN_DIR/run_id    the word, which the run's checkpoints and policies hold, too

What lies beside a copy of a checkpoint is not the run's: that folder does not hold its word.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import gear

FILE = "run_id"
_WORD = re.compile(r"[0-9a-f]{12}")
# What a run writes into its folder; of the files each is replaced as a whole, or added to.
WRITTEN = (
    *("checkpoints", "tensorboard", "wandb", "config.yaml", "metrics.csv", "train.log"),
    *("summary.json", "policy.pt", "best_policy.pt", "learning_curve.png"),
)


def is_word(value: object) -> bool:
    """Whether it can be the word of a run."""
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


def run_of(run_dir: Path) -> str | None:
    """The word of the run that the folder is of; None: of none."""
    path = run_dir / FILE
    if not path.is_file():
        return None
    with path.open("rb") as file:
        word = file.read(64).decode("ascii", "replace").strip()
    return word if is_word(word) else None


def begin(run_dir: Path) -> str:
    """A run begins in this folder, which is made if it is not there; returns its word."""
    run_dir.mkdir(parents=True, exist_ok=True)
    word, beside = uuid.uuid4().hex[:12], run_dir / f".{FILE}.part"
    beside.write_text(f"{word}\n", encoding="ascii")
    os.replace(beside, run_dir / FILE)
    return word


def named(run_dir: Path) -> str:
    """The word of the run in this folder; one begins where none has."""
    return run_of(run_dir) or begin(run_dir)


def refuse_others_files(run_dir: Path) -> None:
    """InvalidArgument if this is no run's folder and holds what a run would write over."""
    if run_of(run_dir) is not None:
        return
    there = [name for name in WRITTEN if os.path.lexists(run_dir / name)]
    if there:
        raise gear.InvalidArgument(
            f"[train] {run_dir} is not the folder of a run, and holds {', '.join(there)}, which "
            "this run would write over: write elsewhere with hydra.run.dir=DIR, or move it away"
        )


def refuse_links(paths: Iterable[Path]) -> None:
    """InvalidArgument if what is written there would land elsewhere."""
    for path in paths:
        if path.is_symlink():
            raise gear.InvalidArgument(
                f"[train] {path} is a symbolic link to {os.readlink(path)!r}, and what is written "
                "there would land elsewhere: name another folder (hydra.run.dir=DIR of gear train, "
                "out=DIR of gear eval), or add trust=true if the folder is your own"
            )


def entries(run_dir: Path) -> Iterator[Path]:
    """What lies in a run's folder, and in those of its folders that a run writes into."""
    for folder in (run_dir, run_dir / "checkpoints", run_dir / "tensorboard"):
        if folder.is_dir():
            yield from sorted(folder.iterdir())
    if (run_dir / "wandb").is_dir():  # wandb itself links its newest logs there
        yield from sorted((run_dir / "wandb").glob("offline-run-*"))
