"""Where metrics go."""

from __future__ import annotations

import csv
import sys
from types import SimpleNamespace

import pytest
from train.needs import needs

import gear
from gear.train.record import loggers
from gear.train.record.loggers import check_installed, make_writers

COLUMNS = ["return", "eval_return"]


@pytest.fixture
def fake_wandb(monkeypatch):
    """What wandb is told, in the place of wandb."""
    told = SimpleNamespace(runs=[], rows=[], finished=0)

    class Run:
        def define_metric(self, name, step_metric):
            told.axis = (name, step_metric)

        def log(self, row):
            told.rows.append(row)

        def finish(self):
            told.finished += 1

    def init(**given):
        told.runs.append(given)
        return Run()

    module = SimpleNamespace(init=init, Settings=dict)
    monkeypatch.setitem(sys.modules, "wandb", module)
    return told


def write(configure, run_dir, *overrides, step=0):
    writers = make_writers(configure(*overrides), run_dir, COLUMNS, step)
    for writer in writers:
        writer.write(step + 10, {"return": 1.5})
        writer.write(step + 20, {"eval_return": -2.0})
        writer.close()


def test_csv_has_a_row_for_each_and_empty_places(configure, tmp_path):
    write(configure, tmp_path, "logger=csv")
    write(configure, tmp_path, "logger=csv", step=10)  # continued: the row of 20 is replaced
    with (tmp_path / "metrics.csv").open(newline="") as file:
        found = list(csv.reader(file))
    assert found == [
        ["step", *COLUMNS],
        *(["10", "1.5", ""], ["20", "1.5", ""], ["30", "", "-2"]),
    ]


def test_wandb_gets_rows_over_environment_steps(configure, tmp_path, fake_wandb):
    write(configure, tmp_path, "logger=wandb", "seed=4", "logger.project=mine")
    assert fake_wandb.axis == ("*", "env_steps")
    assert fake_wandb.rows == [
        {"env_steps": 10, "return": 1.5},
        {"env_steps": 20, "eval_return": -2.0},
    ]
    (run,) = fake_wandb.runs
    assert (run["project"], run["mode"], run["dir"]) == ("mine", "offline", tmp_path)
    assert run["config"]["seed"] == 4
    assert fake_wandb.finished == 1
    assert (tmp_path / "metrics.csv").exists()


def test_a_continued_run_is_the_same_run_of_wandb(configure, tmp_path, fake_wandb):
    other = tmp_path / "other"
    other.mkdir()
    for folder in (tmp_path, tmp_path, other):
        write(configure, folder, "logger=wandb", "logger.mode=online")
    first, again, another = (run["id"] for run in fake_wandb.runs)
    assert first == again != another
    assert {run["resume"] for run in fake_wandb.runs} == {"allow"}


def test_what_is_not_installed_is_said(monkeypatch):
    monkeypatch.setattr(loggers, "find_spec", lambda name: None)
    check_installed(["csv"])
    with pytest.raises(gear.InvalidArgument) as refused:
        check_installed(["csv", "wandb"])
    assert str(refused.value) == (
        "[train] logger.writers=[csv,wandb]: wandb is not installed: "
        "pip install 'gear-replay[wandb]', or choose another, as in logger=csv"
    )


@pytest.mark.slow
@needs("wandb")
def test_wandb_itself_offline(configure, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    write(configure, tmp_path, "logger=wandb")
    (run,) = (tmp_path / "wandb").glob("offline-run-*")
    assert list(run.glob("run-*.wandb"))
