"""Each package that may be absent is asked for before a run begins, or done without in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from train.composed import compose
from train.saved_data import write_cartpole

import gear
from gear.cli.app import main as command
from gear.train.run import _checked

SHORT = (
    *("env=cartpole", "algo.learning_starts=20", "algo.batch_size=8", "model.hidden=[8]"),
    *("eval_every=0", "total_steps=40", "hydra.run.dir=run"),
)
CLONE = (
    *("env=cartpole", "data=saved", "data.path=data", "algo=bc", "model=mlp", "total_steps=2"),
    *("algo.batch_size=4", "eval_every=1", "logger=csv", "hydra.run.dir=run"),
)
PUZZLES = (
    *("data=puzzles", "data.most=6", "data.puzzles=20", "data.eval_puzzles=3", "data.pairs=3"),
    *("model.width=16", "model.layers=1", "model.heads=2", "algo.batch_size=4", "total_steps=1"),
    *("logger=csv", "hydra.run.dir=run"),
)


@pytest.fixture
def hide(tmp_path, monkeypatch):
    """hide("x"): x is not installed, as far as Python can tell."""
    monkeypatch.chdir(tmp_path)

    def hidden(name):
        for each in [each for each in sys.modules if each.startswith("gymnasium.envs.mujoco")]:
            monkeypatch.delitem(sys.modules, each)  # they remember what was there
        loaded = [each for each in sys.modules if each.split(".")[0] == name]
        for each in (name, *loaded):
            monkeypatch.setitem(sys.modules, each, None)

    return hidden


def refused(words, capsys):
    """In one sentence, before there is a folder."""
    assert command(words) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    assert not Path("run").exists()
    return said


@pytest.mark.parametrize(
    ("package", "words", "remedy"),
    [
        ("tensorboard", SHORT, "gear-replay[train]"),
        ("wandb", (*SHORT, "logger=wandb"), "gear-replay[wandb]"),
        ("torchmetrics", PUZZLES, "gear-replay[train]"),
        ("torchmetrics", (*CLONE, "algo.held_out=0.5"), "gear-replay[train]"),
        ("mujoco", ("env=hopper", "hydra.run.dir=run"), "mujoco"),
        ("ale_py", ("env=atari", "hydra.run.dir=run"), "ale_py"),
        ("torch", SHORT, "gear-replay[train]"),
        ("hydra", SHORT, "gear-replay[train]"),
        ("gymnasium", SHORT, "gear-replay[train]"),
        ("deepspeed", (*CLONE, "dist=deepspeed"), "pip install deepspeed"),
        ("horovod", (*SHORT, "dist=horovod"), "dist=ddp"),
    ],
)
def test_what_is_needed_is_asked_for(hide, package, words, remedy, capsys):
    write_cartpole(Path("data"), (7, 12, 5, 9))
    hide(package)
    said = refused(["train", *words], capsys)
    assert remedy in said


def test_ranks_ask_for_what_makes_their_means(hide):
    """Before they begin: they need it when the first episode has ended."""
    cfg = compose(*SHORT[:-1])
    hide("torchmetrics")
    assert _checked(cfg, 1).seed == 0
    with pytest.raises(gear.InvalidArgument, match="torchmetrics is not installed: means over"):
        _checked(cfg, 2)


def test_without_matplotlib_there_is_no_curve(hide, capsys):
    hide("matplotlib")
    assert command(["train", *SHORT, "logger=csv"]) == 0
    told = capsys.readouterr()
    line = "learning curve: none, as matplotlib is not installed: pip install 'gear-replay[train]'"
    assert line in told.out
    assert "Traceback" not in told.err
    assert Path("run/summary.json").is_file()
    assert not Path("run/learning_curve.png").exists()
    assert line in Path("run/train.log").read_text()
    assert command(["eval", "run", "episodes=1"]) == 0
    assert "picture: none, as matplotlib is not installed" in capsys.readouterr().out
    (results,) = Path("run/eval").iterdir()
    assert [path.name for path in results.iterdir()] == ["episodes.csv"]
    assert command(["compare", "run"]) == 0
    assert "learning curves: none, as matplotlib is not installed" in capsys.readouterr().out
    assert not Path("run/compare.png").exists()


def test_a_folder_of_that_name_is_no_package(tmp_path, monkeypatch, capsys):
    """wandb leaves a folder `wandb` wherever it is used."""
    from gear.train.installed import has

    (tmp_path / "no_such_package").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not has("no_such_package")
    assert has("gear")


def test_no_film_without_pillow(hide, capsys):
    assert command(["train", *SHORT, "logger=csv"]) == 0
    hide("PIL")
    capsys.readouterr()
    assert command(["eval", "run", "video=film.gif", "episodes=1"]) == 2
    said = capsys.readouterr().err
    assert "video=film.gif cannot be made: Pillow is not installed" in said
    assert said.count("\n") == 1
    assert not Path("run/eval").exists()
