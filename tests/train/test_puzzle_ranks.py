"""Puzzles over ranks that are processes: the losses, scores and weights of one rank."""

from __future__ import annotations

import csv

import pytest
from train.launched import train_offline

from gear.cli import app
from gear.train.algo.puzzles import SCORES

pytestmark = [pytest.mark.subject("trainer"), pytest.mark.slow, pytest.mark.needs("torchmetrics")]

RUN = (
    *("data=puzzles", "data.puzzles=24", "data.eval_puzzles=5", "data.most=6", "data.pairs=3"),
    *("model.width=16", "model.layers=2", "model.heads=2", "algo.warmup=0", "eval_every=50"),
    *("hydra.run.dir=run", "logger=csv", "total_steps=100", "optim.lr=1e-3"),
)


def run(folder, size, *overrides):
    """The rows of the metrics and the weights at the end, trained by so many ranks."""
    folder.mkdir(exist_ok=True)
    return train_offline(folder, size, *RUN, *overrides)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return run(tmp_path_factory.mktemp("alone"), 1)


@pytest.mark.parametrize("dist", ["ddp", "fsdp2"])
def test_two_ranks_learn_and_answer_as_one_does(alone, tmp_path, dist):
    """Each keeps half of the puzzles, which are the same: draws and augmentations, too."""
    rows, weights = run(tmp_path, 2, f"dist={dist}")
    assert len(rows) == len(alone[0]) == 3  # a row of losses, two evaluations
    compared = set()
    for found, expected in zip(rows, alone[0], strict=True):
        for name, value in expected.items():
            if value and ("loss" in name or "accuracy" in name or "difference" in name):
                assert float(found[name]) == pytest.approx(float(value), rel=1e-3), name
                compared.add(name)
    assert {"loss", "seen_families_accuracy", "unseen_families_pixel_difference"} <= compared
    for name, expected in alone[1].items():
        assert weights[name].numpy() == pytest.approx(expected.numpy(), abs=1e-4), name
    scores_on_one_process(tmp_path, rows[-1])


def scores_on_one_process(folder, last):
    """`gear eval` of the checkpoint of two ranks gives the last evaluation of both."""
    assert app.main(["eval", str(folder / "run"), f"out={folder / 'eval'}"]) == 0
    with (folder / "eval" / "scores.csv").open(newline="") as file:
        sets = [row for row in csv.DictReader(file) if not row["family"]]
    assert [row["set"] for row in sets] == ["seen_families", "unseen_parameters", "unseen_families"]
    for row in sets:
        for score in SCORES:
            expected = float(last[f"{row['set']}_{score}"])
            assert float(row[score]) == pytest.approx(expected, rel=1e-6), (row["set"], score)
