"""Kept checkpoints, and the golden batches that are drawn from them: checkpoints/*.zip.

    PYTHONPATH=tests .venv/bin/python -m golden.checkpoints

writes those that are not there. A kept one stays as it is, so that what a GEAR saved long ago
stays readable; a new version of the format brings more of them, under new names. A loader's state
goes with the GEAR that saved it (gear/loader_state.py): none is kept.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numbered
import numpy as np

import gear
from golden.cases import LAWS, SPENDING, UNITS, Case
from golden.history import SCHEMA, History, learnt_priorities
from golden.parts import Hashes, of_all_ranks
from golden.play import draw, in_threads

FOLDER = Path(__file__).with_name("checkpoints")
LATER = 8  # added to a rank, for a history of its own after loading


@dataclass(frozen=True)
class Checkpoint:
    """What is saved.

    Attributes:
        open: episodes are open, and their writers in the middle of a page.
        spent: a loader has drawn from a buffer with max_times_sampled, until pages came free, and
            two batches are in flight.

    Of several ranks, each has priorities that it has yet to tell the others.
    """

    name: str
    ranks: int = 1
    open: bool = False
    spent: bool = False

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}.zip"

    def case(self, law: str, unit: str, ranks: int) -> Case:
        return Case(law, unit, "both", ranks, "fifo", "spent" if self.spent else "")

    def save(self, target: Path) -> None:
        """Plays the history and saves the buffer."""

        def rank(group: gear.Group | None) -> None:
            case = self.case("fifo", "step", self.ranks)
            with gear.ReplayBuffer(SCHEMA, group=group, **case.buffer_arguments()) as buffer:
                history = History(buffer, 0 if group is None else group.rank)
                history.begin()
                if not self.open:
                    history.end()
                loader = buffer.loader(framework="numpy", **case.loader_arguments())
                for turn in range(30 if self.spent else 4):
                    batch = next(loader)
                    buffer.update(batch.ids, learnt_priorities(batch.ids, turn))
                buffer.save(target)
                loader.close()

        in_threads(self.ranks, self.ranks, rank)


def of_version(suffix: str) -> list[Checkpoint]:
    return [
        Checkpoint(f"plain{suffix}"),
        Checkpoint(f"open{suffix}", open=True),
        Checkpoint(f"spent{suffix}", spent=True),
        Checkpoint(f"two-ranks{suffix}", ranks=2, open=True),
    ]


NEWEST = of_version("-3")  # as this code saves them
CHECKPOINTS = of_version("") + NEWEST  # the first: versions 1 and 2


@dataclass(frozen=True)
class Draw:
    """Batches that so many ranks draw from a checkpoint."""

    checkpoint: Checkpoint
    case: Case

    @property
    def name(self) -> str:
        case = self.case
        return f"checkpoint-{self.checkpoint.name}-{case.law}-{case.unit}-{case.ranks}"

    def play(self, saved: Path) -> Hashes:
        """Loads it, goes on with its open episodes and stores more, and draws."""

        def rank(group: gear.Group | None) -> Hashes:
            number = 0 if group is None else group.rank
            with gear.ReplayBuffer.load(saved, group=group) as buffer:
                writers = [
                    buffer.writer(episode=episode.uid)
                    for episode in buffer.episodes()
                    if episode.state == "open"
                ]
                for writer in writers:
                    rows = numbered.rows(np.arange(1, 7))
                    writer.extend(priority=np.full(6, 0.5, np.float32), **rows)
                    writer.end_episode(terminated=True)
                history = History(buffer, number + LATER)
                history.write(40)
                return draw(self.case, buffer, history)

        ranks = self.case.ranks
        return of_all_ranks(in_threads(ranks, ranks, rank))


def all_draws() -> Iterator[Draw]:
    """By the ranks that saved a checkpoint; those of two ranks also by one and by four."""
    for checkpoint, law, unit in product(CHECKPOINTS, LAWS, UNITS):
        if checkpoint.spent and law not in SPENDING[False]:
            continue
        for ranks in (1, 2, 4) if checkpoint.ranks == 2 else (1,):
            yield Draw(checkpoint, checkpoint.case(law, unit, ranks))


@contextmanager
def unpacked(checkpoint: Checkpoint) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(checkpoint.file) as archive:
        archive.extractall(folder)
        yield Path(folder)


def pack(checkpoint: Checkpoint) -> None:
    """The same bytes whenever it is packed."""
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "replay"
        checkpoint.save(saved)
        with zipfile.ZipFile(checkpoint.file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(one for one in saved.rglob("*") if one.is_file()):
                entry = zipfile.ZipInfo(path.relative_to(saved).as_posix())
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for checkpoint in CHECKPOINTS:
        if not checkpoint.file.exists():
            pack(checkpoint)
            print(f"{checkpoint.file.name}: {checkpoint.file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
