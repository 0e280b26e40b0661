"""What lies beside a checkpoint is its run's, or stays as it is to the byte."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import gear
from gear.cli.app import main as command
from gear.train.app import main
from gear.train.record import folder
from gear.train.record.checkpoint import checkpoints, find

pytestmark = pytest.mark.subject("trainer")

SHORT = (
    *("env=cartpole", "algo.learning_starts=20", "algo.batch_size=8", "model.hidden=[8]"),
    *("eval_every=0", "checkpoint_every=30", "keep_checkpoints=9", "total_steps=60"),
)
OWN = "my own"
NAMES = ("config.yaml", "metrics.csv", "summary.json", "train.log", "policy.pt", "notes.txt")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of 60 steps, which no test changes."""
    run = tmp_path_factory.mktemp("trained") / "run"
    assert main([*SHORT, f"hydra.run.dir={run}"]) == 0
    return run


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def sentinels(where: Path) -> Path:
    """A folder with files of the user's own under the names that a run gives to its files."""
    where.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (where / name).write_text(OWN)
    return where


def unchanged(where: Path) -> bool:
    return all((where / name).read_text() == OWN for name in NAMES)


@pytest.mark.parametrize("parent", ["keep", "checkpoints", "."], ids=["keep", "checkpoints", "."])
def test_a_copy_is_continued_elsewhere(trained, parent, capsys):
    """Whatever the copy's folder is called, and however it is named on the command line."""
    home = sentinels(Path("home"))
    copied = home / parent / "step_30"
    shutil.copytree(trained / "checkpoints/step_30", copied)
    sentinels(copied.parent)
    before = sorted(home.rglob("*"))
    assert main([f"checkpoint={copied}", "total_steps=40"]) == 0
    assert unchanged(home)
    assert unchanged(copied.parent)
    assert sorted(home.rglob("*")) == before
    (run,) = Path("outputs").glob("cartpole-dqn-seed0/*")
    assert [found.step for found in checkpoints(run)] == [40]
    said = capsys.readouterr().out
    assert f"{copied} does not lie in the folder of its run: what is beside it stays" in said
    assert f"writing to {run}" in said
    # It is a run of its own, and goes on in its place.
    assert main([f"checkpoint={run}", "total_steps=45"]) == 0
    assert [found.step for found in checkpoints(run)] == [40, 45]


def test_a_checkpoint_named_from_within_is_in_its_run(trained, monkeypatch):
    shutil.copytree(trained, "run")
    monkeypatch.chdir("run/checkpoints/step_60")
    assert find(Path(".")).run_dir.resolve() == Path("../..").resolve()
    assert main(["checkpoint=.", "total_steps=70"]) == 0
    assert [found.step for found in checkpoints(Path("../.."))] == [30, 60, 70]


def test_a_run_that_was_moved_or_copied_whole_is_continued_in_its_place(trained):
    word = folder.run_of(trained)
    shutil.copytree(trained, "elsewhere")
    assert main(["checkpoint=elsewhere", "total_steps=70"]) == 0
    assert folder.run_of(Path("elsewhere")) == word == find(Path("elsewhere")).run
    assert not list(Path().glob("outputs/*/*"))


def test_a_run_of_another_word_is_not_continued(trained, capsys):
    """The checkpoint was put into the folder of another run."""
    shutil.copytree(trained / "checkpoints/step_30", "other/checkpoints/step_30")
    folder.begin(sentinels(Path("other")))
    assert main(["checkpoint=other", "total_steps=40"]) == 0
    assert unchanged(Path("other"))
    assert "does not lie in the folder of its run" in capsys.readouterr().out


def test_a_new_run_has_a_word_of_its_own(trained):
    step = trained / "checkpoints/step_30"
    assert main([f"checkpoint={step}", "total_steps=40", "hydra.run.dir=branch"]) == 0
    words = [folder.run_of(trained), folder.run_of(Path("branch"))]
    assert None not in words
    assert words[0] != words[1]
    assert [find(Path("branch")).run, find(trained).run] == words[::-1]


@pytest.mark.parametrize("words", [(), ("checkpoint=kept/step_30",)], ids=["new", "continued"])
def test_files_of_others_are_not_written_over(trained, words, capsys):
    """In the folder that the user has named, too."""
    shutil.copytree(trained / "checkpoints/step_30", "kept/step_30")
    mine = sentinels(Path("mine"))
    assert command(["train", *(words or SHORT), "hydra.run.dir=mine"]) == 2
    said = capsys.readouterr().err
    assert "mine is not the folder of a run, and holds config.yaml, metrics.csv, train.log" in said
    assert "hydra.run.dir=DIR, or move it away" in said
    assert said.count("\n") == 1
    assert unchanged(mine)
    assert sorted(path.name for path in mine.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", ["metrics.csv", "checkpoints", "tensorboard", "policy.pt.part"])
def test_links_out_of_a_run_are_not_written_through(trained, name, capsys):
    """As a run folder of a stranger's may have them."""
    shutil.copytree(trained, "run")
    outside = Path("outside")
    if (Path("run") / name).is_dir():
        shutil.move(Path("run") / name, outside)
    else:
        outside.write_text(OWN)
        (Path("run") / name).unlink(missing_ok=True)
    (Path("run") / name).symlink_to(os.path.abspath(outside))
    before = {p: p.read_bytes() for p in [outside, *outside.rglob("*")] if p.is_file()}
    with pytest.raises(gear.InvalidArgument, match=f"run/{name} is a symbolic link to .*outside"):
        main(["checkpoint=run", "total_steps=70"])
    assert {p: p.read_bytes() for p in [outside, *outside.rglob("*")] if p.is_file()} == before
    if name == "checkpoints":  # on another file system, as its owner wants it
        assert main(["checkpoint=run", "total_steps=70", "trust=true"]) == 0
        assert (outside / "step_70").is_dir()


@pytest.mark.parametrize("what", ["checkpoint", "policy"])
def test_results_of_a_copy_go_elsewhere(trained, what, capsys):
    """And those of what lies in its run, into the run's folder."""
    of = {"checkpoint": "checkpoints/step_30", "policy": "policy.pt"}[what]
    shutil.copytree(trained, "run")
    assert command(["eval", f"run/{of}", "episodes=1"]) == 0
    name = f"{Path(of).stem}-cartpole"
    assert (Path("run/eval") / name / "episodes.csv").is_file()
    home = Path("home/keep")
    own = [place / "eval" / name / "episodes.csv" for place in (home, home.parent)]
    for file in own:
        file.parent.mkdir(parents=True)
        file.write_text(OWN)
    (shutil.copytree if what == "checkpoint" else shutil.copy)(f"run/{of}", home / Path(of).name)
    capsys.readouterr()
    assert command(["eval", str(home / Path(of).name), "episodes=1"]) == 0
    assert [file.read_text() for file in own] == [OWN, OWN]
    assert (Path("outputs/eval") / name / "episodes.csv").is_file()
    said = capsys.readouterr().out
    assert f"does not lie in the folder of its run: results go to outputs/eval/{name}" in said


def test_results_are_not_written_through_links(trained, capsys):
    shutil.copytree(trained, "run")
    Path("outside").mkdir()
    Path("run/eval").symlink_to(os.path.abspath("outside"))
    assert command(["eval", "run", "episodes=1"]) == 2
    assert "run/eval is a symbolic link" in capsys.readouterr().err
    assert list(Path("outside").iterdir()) == []
