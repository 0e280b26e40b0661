"""Checkpoints of a run: written whole or not at all, found by number.

    RUN_DIR/checkpoints/step_5000/trainer.pt    networks, optimisers, number of ranks, the word of
                                                the run; generators, counters and the open episode
                                                of rank 0
                                  trainer-00001-of-00004.pt
                                                the latter of rank 1, and so on
                                  config.yaml   the resolved configuration
                                  replay/       `ReplayBuffer.save`

A checkpoint may be a stranger's. The .pt files hold tensors and plain values only and are read with
`weights_only=True`: they cannot run code. What of config.yaml is used without being asked for on
the command line, `resume` and `policies.trained` decide. Ranks on several nodes write into one file
system.
"""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig

import gear
from gear.train.config import written
from gear.train.ranks import Ranks
from gear.train.record import folder
from gear.whole import publish, recover, saving

FORMAT = 3
_NAME = re.compile(r"step_(\d+)")
# What a checkpoint of the same step takes the place of, as gear.whole names it. Killed between the
# two renames, it is the checkpoint of that step.
_REPLACED = re.compile(r"\.step_(\d+)\.replaced")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint directory."""

    path: Path

    @property
    def step(self) -> int:
        """Environment steps it was taken after."""
        match = _NAME.fullmatch(self.path.name) or _REPLACED.fullmatch(self.path.name)
        return int(match[1]) if match else 0

    @property
    def run(self) -> str | None:
        """The word of the run that saved it; None: of a version before there were words."""
        word = self._head().get("run")
        return word if folder.is_word(word) else None

    @property
    def run_dir(self) -> Path | None:
        """The folder of the run that saved it, where it still lies in its `checkpoints`; None: it
        is a copy, and what lies beside it is not the run's."""
        near = self.path.parent.name == "checkpoints"
        path = self.path if near else Path(os.path.abspath(self.path))
        word = folder.run_of(path.parent.parent) if path.parent.name == "checkpoints" else None
        return path.parent.parent if word and word == self.run else None

    def config(self) -> DictConfig:
        """As it was written; CorruptData if no run writes the like."""
        path = self.path / "config.yaml"
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise gear.CorruptData(f"[train] cannot read {path}: {error}") from error
        return written(text, path)

    @property
    def num_ranks(self) -> int:
        """How many ranks saved it."""
        return self._count_of("num_ranks")

    @property
    def config_ranks(self) -> int:
        """For how many ranks `config` is written: as many as the run began with."""
        return self._count_of("config_ranks")

    def state(self, rank: int = 0, num_ranks: int | None = None) -> dict[str, Any]:
        """What rank `rank` of `num_ranks` (None: of as many as saved it) needs to go on.

        A rank that was there when it was saved gets what it had. A further one has neither "rng"
        nor "episodes": they start afresh. "gone" is what the ranks had that are there no more, each
        for rank k modulo `num_ranks`, as the replay buffer brings it their open episodes.
        """
        shared = self._read("trainer.pt")
        saved = self.num_ranks
        size = num_ranks or saved
        own = self._read(_part_name(rank, saved)) if 0 < rank < saved else {}
        state = {**shared, **own, "rank": rank}
        if rank >= saved:
            for key in ("rng", "episodes", "ended", "recorded"):
                state.pop(key, None)
            # No rank has begun more episodes: none is played again.
            begun = len(shared["counters"]["returns"]) + saved * len(shared.get("episodes", []))
            state["counters"] = {**state["counters"], "episodes": begun}
        gone = range(rank + size, saved, size)
        state["gone"] = [{**self._read(_part_name(k, saved)), "rank": k} for k in gone]
        return state

    def _count_of(self, key: str) -> int:
        found = self._head().get(key)
        if type(found) is not int or found < 1:
            raise gear.CorruptData(
                f"[train] {self.path / 'trainer.pt'} has {key}={found!r} where a whole number of "
                "at least 1 belongs: it is no checkpoint that gear train wrote; take another"
            )
        return found

    def _head(self) -> dict[str, Any]:
        """trainer.pt without its tensors, which stay in the file."""
        return self._load("trainer.pt", mmap=True)

    def _read(self, name: str) -> dict[str, Any]:
        loaded = self._load(name)
        try:
            return dict(_to_numpy(loaded))
        except Exception as error:  # whatever a wrong array ends in
            raise gear.CorruptData(f"[train] cannot read {self.path / name}: {error}") from error

    def _load(self, name: str, **how: bool) -> dict[str, Any]:
        path = self.path / name
        try:
            state = torch.load(path, map_location="cpu", weights_only=True, **how)
        except Exception as error:  # whatever the unpickler stumbles over
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise gear.CorruptData(f"[train] cannot read {path}: {reason}") from error
        found = state.get("format") if isinstance(state, dict) else None
        if type(found) is not int:
            raise gear.CorruptData(
                f"[train] {path} is no part of a checkpoint but another file: give the folder of "
                "a run, or one of its checkpoints/step_N"
            )
        if found != FORMAT:
            remedy = "update GEAR" if found > FORMAT else "continue it with that version"
            raise gear.CorruptData(
                f"[train] {path} was written by another version of GEAR in format "
                f"{found} and this one reads format {FORMAT}: {remedy}"
            )
        return dict(state)

    def buffer(self, tier: str, group: gear.Group) -> gear.ReplayBuffer:
        """The replay buffer; collective."""
        return gear.ReplayBuffer.load(self.path / "replay", tier=tier, group=group)


def save(
    run_dir: Path,
    step: int,
    *,
    config: str,
    shared: dict[str, Any],
    own: dict[str, Any],
    buffer: gear.ReplayBuffer | None,
    ranks: Ranks,
    keep: int,
) -> Checkpoint:
    """Write RUN_DIR/checkpoints/step_<step>, whole or not at all; keep `keep` up to this one.

    Collective: `shared` is written once, `own` by every rank, and what rank 0 has begun appears
    under its name when all have written theirs. What fails on one rank ends it on all of them, and
    the checkpoints that were there stay.

    config: the content of config.yaml.
    buffer: None where nothing was stored.
    """
    all_of_them = run_dir / "checkpoints"
    target = all_of_them / f"step_{step}"
    beside = saving(target)

    def prepare() -> None:
        if ranks.rank == 0:
            all_of_them.mkdir(parents=True, exist_ok=True)
            for checkpoint in checkpoints(run_dir):
                recover(all_of_them / f"step_{checkpoint.step}")
            for torn in all_of_them.glob(".step_*"):
                shutil.rmtree(torn)
            beside.mkdir()

    def write() -> None:
        if ranks.rank == 0:
            (beside / "config.yaml").write_text(config, encoding="utf-8")
            head = {"num_ranks": ranks.size, "run": folder.named(run_dir)}
            _write(beside / "trainer.pt", {**shared, **own, **head})
        else:
            _write(beside / _part_name(ranks.rank, ranks.size), own)

    def commit() -> None:
        if ranks.rank == 0:
            publish(target)
            for other in [found for found in checkpoints(run_dir) if found.step <= step][:-keep]:
                shutil.rmtree(other.path)

    ranks.together(prepare)
    if buffer:
        buffer.save(beside / "replay")
    ranks.together(write)
    ranks.together(commit)
    return Checkpoint(target)


def checkpoints(run_dir: Path) -> list[Checkpoint]:
    """Complete checkpoints of a run in order of their step number."""
    folders = (run_dir / "checkpoints").glob("step_*")
    found = {c.step: c for c in map(Checkpoint, folders) if _NAME.fullmatch(c.path.name)}
    for path in (run_dir / "checkpoints").glob(".step_*"):
        if _REPLACED.fullmatch(path.name):
            found.setdefault(Checkpoint(path).step, Checkpoint(path))
    return sorted(found.values(), key=lambda checkpoint: checkpoint.step)


def find(path: Path) -> Checkpoint:
    """The checkpoint at `path`, or the newest of the run at `path`."""
    if (path / "trainer.pt").is_file():
        return Checkpoint(path if path.name else Path(os.path.abspath(path)))
    found = checkpoints(path)
    if not found:
        raise gear.InvalidArgument(
            f"[train] no checkpoint at checkpoint={path}: give a run directory or one of its "
            "checkpoints/step_N"
        )
    return found[-1]


def find_newest(beside: Path, fits: Callable[[DictConfig], bool]) -> Checkpoint | None:
    """The last checkpoint of that run in the folder `beside` which fits and was saved last."""
    runs = [checkpoints(run)[-1:] for run in beside.glob("*") if run.is_dir()]
    newest = sorted((c for run in runs for c in run), key=lambda c: c.path.stat().st_mtime)
    return next((c for c in reversed(newest) if fits(c.config())), None)


def _write(path: Path, state: dict[str, Any]) -> None:
    whole = io.BytesIO()  # torch tells of a full disk by a RuntimeError
    torch.save(_to_tensors({"format": FORMAT, **state}), whole)
    with path.open("wb") as file:
        file.write(whole.getbuffer())
        file.flush()
        os.fsync(file.fileno())


def _part_name(rank: int, num_ranks: int) -> str:
    return f"trainer-{rank:05d}-of-{num_ranks:05d}.pt"


def _to_tensors(value: Any) -> Any:
    """NumPy arrays as tagged byte tensors: every dtype passes and no class is pickled."""
    if isinstance(value, np.ndarray):
        data = np.frombuffer(value.tobytes(), np.uint8).copy()
        return {"ndarray": value.dtype.str, "shape": value.shape, "data": torch.from_numpy(data)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: _to_tensors(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_to_tensors(item) for item in value)
    return value


def _to_numpy(value: Any) -> Any:
    if isinstance(value, dict):
        if "ndarray" in value:
            flat = np.frombuffer(value["data"].numpy().tobytes(), value["ndarray"])
            return flat.reshape(value["shape"]).copy()
        return {key: _to_numpy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_to_numpy(item) for item in value)
    return value
