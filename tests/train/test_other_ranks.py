"""A run that goes on with another number of ranks learns as if nothing had changed, offline."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from train.saved_data import write_pendulum

from gear.train.app import main
from gear.train.record import metrics
from gear.train.record.checkpoint import checkpoints

pytestmark = pytest.mark.subject("trainer")

STEPS, AT = 60, 30
TINY = (
    *("data=saved", "data.path=replay", "model.width=16", "model.layers=1", "model.heads=2"),
    *("model.max_steps=300", "algo.context=4", "replay.page_steps=16", "algo.warmup=0"),
    *("dist=ddp", "logger=csv", "eval_every=0", "replay.prefetch=3"),
    *(f"total_steps={STEPS}", f"checkpoint_every={AT}", "keep_checkpoints=9"),
)


def losses(run: Path) -> list[float]:
    with (run / "metrics.csv").open(newline="") as file:
        rows = {int(row["step"]): row for row in csv.DictReader(file)}
    return [float(rows[step]["loss"]) for step in sorted(rows)]


def weights(run: Path) -> dict[str, np.ndarray]:
    saved = checkpoints(run)[-1]
    assert saved.step == STEPS
    found = {}

    def walk(value, where):
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{where}/{key}")
        elif isinstance(value, torch.Tensor):
            found[where] = value.numpy()

    walk(saved.state()["algorithm"], "")
    return found


def branch(run: Path, to: Path) -> Path:
    """A run that was cut off after its first checkpoint."""
    first = f"checkpoints/step_{AT}"
    shutil.copytree(run / first, to / first)
    shutil.copy(run / "run_id", to)
    return to


@pytest.mark.slow
def test_losses_are_those_of_a_run_that_did_not_change(launch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(metrics, "UPDATES_A_ROW", 10)
    write_pendulum(tmp_path / "replay", (7, 12, 5, 9, 30, 22))
    two = launch.by_hand(2, *TINY, "algo.batch_size=8", "hydra.run.dir=two")
    assert main([*TINY, "algo.batch_size=16", "hydra.run.dir=one"]) == 0
    finish(launch, two)
    data = "data.path=replay"
    more = launch.by_hand(2, f"checkpoint={branch(Path('one'), Path('more'))}", data)
    assert main([f"checkpoint={branch(Path('two'), Path('fewer'))}", data]) == 0
    finish(launch, more)

    ranks = {run: checkpoints(Path(run))[-1].num_ranks for run in ("one", "two", "more", "fewer")}
    assert ranks == {"one": 1, "two": 2, "more": 2, "fewer": 1}
    # The first row holds the mean since the last one of `two`, whose rows are further apart.
    assert len(losses(Path("fewer"))) == (STEPS - AT) // 10
    assert losses(Path("fewer"))[1:] == pytest.approx(losses(Path("one"))[-2:], abs=1e-5)
    expected = weights(Path("one"))
    assert len(expected) > 10
    for run in ("two", "fewer", "more"):
        found = weights(Path(run))
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=f"{run}{name}")


def finish(launch, processes):
    told = launch.finish(*processes)
    assert [process.returncode for process in processes] == [0, 0], told
