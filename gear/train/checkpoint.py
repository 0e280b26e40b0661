"""Checkpoints of a run: written whole or not at all, found by number.

    RUN_DIR/checkpoints/step_5000/trainer.pt    networks, optimisers, generators, counters,
                                                the open episode
                                  config.yaml   the resolved configuration
                                  replay/       `ReplayBuffer.save`

trainer.pt holds tensors and plain values only and is read with `weights_only=True`: it cannot run
code.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

import gear

FORMAT = 1
_NAME = re.compile(r"step_(\d+)")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint directory."""

    path: Path

    @property
    def step(self) -> int:
        """Environment steps it was taken after."""
        match = _NAME.fullmatch(self.path.name)
        return int(match[1]) if match else 0

    @property
    def run_dir(self) -> Path:
        return self.path.parent.parent

    def config(self) -> DictConfig:
        config = OmegaConf.load(self.path / "config.yaml")
        if not isinstance(config, DictConfig):
            raise gear.CorruptData(f"[train] {self.path / 'config.yaml'} is not a mapping")
        return config

    def state(self) -> dict[str, Any]:
        path = self.path / "trainer.pt"
        try:
            state = _to_numpy(torch.load(path, weights_only=True))
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            reason = str(error).splitlines()[0]
            raise gear.CorruptData(f"[train] cannot read {path}: {reason}") from error
        if state["format"] > FORMAT:
            raise gear.CorruptData(
                f"[train] {path} has format {state['format']}: this version reads up to {FORMAT}, "
                "update GEAR"
            )
        return dict(state)

    def buffer(self) -> gear.ReplayBuffer:
        return gear.ReplayBuffer.load(self.path / "replay")


def save(
    run_dir: Path,
    step: int,
    *,
    config: DictConfig,
    state: dict[str, Any],
    buffer: gear.ReplayBuffer,
    keep: int,
) -> Checkpoint:
    """Write RUN_DIR/checkpoints/step_<step>, whole or not at all; keep the newest `keep`.

    Steps beyond this one are left from a run that went on from here before: they go, too.
    """
    folder = run_dir / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    for torn in folder.glob(".step_*"):
        shutil.rmtree(torn)
    target, beside = folder / f"step_{step}", folder / f".step_{step}"
    beside.mkdir()
    buffer.save(beside / "replay")
    OmegaConf.save(config, beside / "config.yaml")
    with (beside / "trainer.pt").open("wb") as file:
        torch.save(_to_tensors({"format": FORMAT, **state}), file)
        file.flush()
        os.fsync(file.fileno())
    if target.exists():
        target.rename(folder / f".step_{step}_replaced")
    beside.rename(target)
    _sync_directory(folder)
    found = checkpoints(run_dir)
    kept = [checkpoint for checkpoint in found if checkpoint.step <= step][-max(1, keep) :]
    for other in found:
        if other not in kept:
            shutil.rmtree(other.path)
    for replaced in folder.glob(".step_*_replaced"):
        shutil.rmtree(replaced)
    return Checkpoint(target)


def checkpoints(run_dir: Path) -> list[Checkpoint]:
    """Complete checkpoints of a run in order of their step number."""
    folders = (run_dir / "checkpoints").glob("step_*")
    found = [Checkpoint(path) for path in folders if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def find(path: Path) -> Checkpoint:
    """The checkpoint at `path`, or the newest of the run at `path`."""
    if (path / "trainer.pt").is_file():
        return Checkpoint(path)
    found = checkpoints(path)
    if not found:
        raise gear.InvalidArgument(
            f"[train] no checkpoint at checkpoint={path}: give a run directory or one of its "
            "checkpoints/step_N"
        )
    return found[-1]


def find_newest(folder: Path, fits: Callable[[DictConfig], bool]) -> Checkpoint | None:
    """The last checkpoint of that run in `folder` which fits and was saved last."""
    runs = [checkpoints(run)[-1:] for run in folder.glob("*") if run.is_dir()]
    newest = sorted((c for run in runs for c in run), key=lambda c: c.path.stat().st_mtime)
    return next((c for c in reversed(newest) if fits(c.config())), None)


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


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
