"""What goes wrong in a run ends it with one sentence, and its last checkpoint loads."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import gymnasium
import pytest

import gear
from gear.cli.app import main as command
from gear.train.app import main
from gear.train.record.checkpoint import checkpoints, find
from gear.train.tasks.environment import Environment

pytestmark = pytest.mark.subject("trainer")

SHORT = (
    "env=cartpole",
    "algo.learning_starts=20",
    "algo.batch_size=8",
    "model.hidden=[8]",
    "logger=csv",
    "eval_every=0",
    "hydra.run.dir=run",
    "checkpoint_every=50",
    "keep_checkpoints=9",
)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def steps(run: Path = Path("run")) -> list[int]:
    return [found.step for found in checkpoints(run)]


@pytest.mark.parametrize("replay", ["uniform", "prioritized"])
def test_loss_that_is_no_number_ends_the_run(monkeypatch, capsys, replay):
    """Found where losses are read; nothing that learned from it is saved."""
    reward = Environment.learning_reward
    taken = []

    def spoilt(self, value):
        taken.append(value)
        return float("nan") if len(taken) == 120 else reward(self, value)

    words = ["train", *SHORT, f"replay={replay}", "total_steps=5000"]
    with monkeypatch.context() as patch:
        patch.setattr(Environment, "learning_reward", spoilt)
        assert command(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("gear: [train] "), said
    assert said.count("\n") == 1
    assert "is nan at step " in said
    assert steps() == [50, 100]
    assert main(["checkpoint=run", "total_steps=110"]) == 0
    assert steps()[-1] == 110


def test_full_disk_ends_the_run_and_keeps_what_was_saved(capsys):
    """The limit on a file's size stands for the disk: writes beyond it fail in the same way."""
    assert main([*SHORT, "total_steps=60"]) == 0
    assert steps() == [50, 60]
    largest = max(p.stat().st_size for p in find(Path("run")).path.rglob("*"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest - 1, limits[1]))
    try:
        code = command(["train", "checkpoint=run", "total_steps=200"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    said = capsys.readouterr().err
    assert code == 2
    assert "File too large" in said
    assert said.count("\n") == 1, said
    assert steps() == [50, 60]
    assert main(["checkpoint=run", "total_steps=70"]) == 0
    assert steps() == [50, 60, 70]


def test_crash_of_an_environment_prints_its_traceback(monkeypatch, capsys):
    class Broken(gymnasium.Wrapper):
        def step(self, action):
            raise ZeroDivisionError("in the user's own code")

    made = gymnasium.make
    monkeypatch.setattr(gymnasium, "make", lambda *a, **k: Broken(made(*a, **k)))
    assert command(["train", *SHORT, "total_steps=60"]) != 0
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "test_survival.py" in said
    assert "ZeroDivisionError: in the user's own code" in said


def test_pause_of_a_checkpoint_is_shown(capsys):
    assert main([*SHORT, "total_steps=120"]) == 0
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["checkpoint_seconds"] > 0
    log = Path("run/train.log").read_text()
    assert log.count("checkpoint saved, learning paused for ") == 3
    assert "seconds held up by checkpoints" in capsys.readouterr().out


def test_older_checkpoint_does_not_delete_newer_ones(capsys):
    """Neither in its own folder, which is refused, nor in another one."""
    assert main([*SHORT, "total_steps=200"]) == 0
    assert steps() == [50, 100, 150, 200]
    older = "checkpoint=run/checkpoints/step_100"
    with pytest.raises(gear.InvalidArgument, match="it would replace what is there"):
        main([older, "keep_checkpoints=1", "total_steps=160"])
    assert main([older, "keep_checkpoints=1", "total_steps=160", "hydra.run.dir=branch"]) == 0
    assert steps() == [50, 100, 150, 200]
    assert steps(Path("branch")) == [160]
