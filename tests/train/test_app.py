"""`gear train` as a user meets it: what it writes, what it refuses, how it continues."""

from __future__ import annotations

import csv
import json
import logging
import re
import shlex
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from train.composed import compose

import gear
import gear.cli.app
from gear.train.app import main
from gear.train.config import read_place
from gear.train.models.exported import evaluation_of
from gear.train.record.checkpoint import checkpoints

SHORT = [
    "total_steps=450",
    "algo.learning_starts=350",
    "algo.batch_size=16",
    "model.hidden=[16]",
    "checkpoint_every=200",
]
KEYS = {
    *("final_return", "env_steps", "env_steps_per_s", "samples_per_s", "replay_share", "seed"),
    *("seconds", "episodes", "updates", "eval_return", "checkpoint_seconds"),
}


@pytest.fixture(autouse=True)
def working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def rows(run_dir):
    with (run_dir / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def only_run(pattern="outputs/*/*"):
    (run_dir,) = Path().glob(pattern)
    return run_dir


def test_run_directory(capsys):
    assert main([*SHORT, "seed=3"]) == 0
    run_dir = only_run("outputs/pendulum-sac-seed3/*")
    summary = json.loads((run_dir / "summary.json").read_text())
    assert set(summary) == KEYS
    assert summary["env_steps"] == 450
    assert summary["seed"] == 3
    assert summary["episodes"] == 2
    assert -2000 < summary["final_return"] < 0
    assert 0 < summary["replay_share"] < 1
    assert (run_dir / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((run_dir / "tensorboard").glob("events.*"))
    assert [row["step"] for row in rows(run_dir)] == ["200", "400"]
    assert float(rows(run_dir)[1]["critic_loss"]) > 0
    assert [c.step for c in checkpoints(run_dir)] == [400, 450]
    out = capsys.readouterr().out
    for words in ("return, last 10 episodes", "time in replay", "learning curve: ", "try next"):
        assert words in out


def test_log_file_is_appended_to():
    """What the screen showed, with the time of each line, over all continuations."""
    assert main([*SHORT, "hydra.run.dir=run", "eval_every=150", "eval_episodes=2"]) == 0
    first = Path("run/train.log").read_text()
    for words in ("strategy", "in all", "every 200 environment steps", "starts, writing to run"):
        assert words in first
    assert "step 150: evaluation of 2 greedy episodes: return -" in first
    assert "time in replay" in first
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d step 450/450  return ", first, re.M)
    assert main(["checkpoint=run", "total_steps=500", "eval_every=0"]) == 0
    both = Path("run/train.log").read_text()
    assert both.startswith(first)
    assert "continues run/checkpoints/step_450" in both.removeprefix(first)


class Crashing(gymnasium.Env):
    """A user's environment with a fault in its 20th step, or in its constructor."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, at_once: bool = False) -> None:
        self.steps = 0
        if at_once:
            len(3)

    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), 1 / (20 - self.steps), False, False, {}


class Warns(Crashing):
    """A user's environment that warns, and whose library logs a warning."""

    def step(self, action):
        self.steps += 1
        if self.steps == 30:
            warnings.warn("this simulator is slow", UserWarning, stacklevel=1)
            logging.getLogger("simulator").warning("low on memory")
        return np.zeros(2, np.float32), 0.0, False, False, {}


class Quiet(Crashing):
    """One that is made with an argument of the user's."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


def test_warnings_are_seen_and_logged(capsys):
    gymnasium.register("Warning-v0", Warns)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            short = ["total_steps=40", "algo.learning_starts=40", "hydra.run.dir=run"]
            assert main([*SHORT, *short, "env.id=Warning-v0"]) == 0
    finally:
        del gymnasium.registry["Warning-v0"]
    log, said = Path("run/train.log").read_text(), capsys.readouterr().err
    for words in ("UserWarning: this simulator is slow", "simulator: low on memory"):
        assert said.count(words) == log.count(words) == 1


def test_evaluations_are_rows_and_survive(capsys):
    """The training they stand beside is the same to the bit, and a continued run has them all. The
    policy of the best one is kept, as it acted, and plays its episodes again."""
    short = [*SHORT, "logger=csv", "algo.policy_every=7"]
    assert main([*short, "hydra.run.dir=with", "eval_every=150", "eval_episodes=1"]) == 0
    found = {
        int(row["step"]): float(row["eval_return"])
        for row in rows(Path("with"))
        if row["eval_return"]
    }
    step = max(found, key=found.get)
    said = capsys.readouterr().out
    assert f"of the best evaluation, {found[step]:,.1f} after step {step}: with/best_policy" in said
    assert gear.cli.app.main(["eval", "with/best_policy.pt", "episodes=1"]) == 0
    with Path("with/eval/best_policy-pendulum/episodes.csv").open(newline="") as file:
        (played,) = csv.DictReader(file)
    assert float(played["return"]) == pytest.approx(found[step], rel=1e-5)  # as a row keeps it
    assert main([*short, "hydra.run.dir=without", "eval_every=0"]) == 0
    evaluated = [row for row in rows(Path("with")) if row["eval_return"]]
    assert [row["step"] for row in evaluated] == ["150", "300", "450"]
    episodes = [[r["return"] for r in rows(Path(n)) if r["return"]] for n in ("with", "without")]
    assert episodes[0] == episodes[1]
    digests = [checkpoints(Path(n))[-1].state()["networks"] for n in ("with", "without")]
    assert digests[0] == digests[1]
    summary = json.loads(Path("with/summary.json").read_text())
    assert summary["eval_return"] == pytest.approx(float(evaluated[-1]["eval_return"]), rel=1e-4)
    best = Path("with/best_policy.pt")  # as steps left it that the run has not taken
    torch.save({**torch.load(best, weights_only=True), "evaluation": (999, 0.0)}, best)
    assert main(["checkpoint=with", "total_steps=600"]) == 0
    assert evaluation_of(best)[0] == 600
    counters = checkpoints(Path("with"))[-1].state()["counters"]
    assert counters["eval_steps"] == [150, 300, 450, 600]
    assert "return, last evaluation" in capsys.readouterr().out


def test_same_seed_same_run():
    for name in ("a", "b"):
        assert main([*SHORT, "logger=csv", f"hydra.run.dir={name}"]) == 0
    clocks = {"seconds", "env_steps_per_s", "samples_per_s"}
    a, b = ([{k: row[k] for k in row if k not in clocks} for row in rows(Path(n))] for n in "ab")
    assert a == b


def test_continue_in_the_same_directory(capsys):
    assert main([*SHORT, "hydra.run.dir=whole", "total_steps=900"]) == 0
    assert main([*SHORT, "hydra.run.dir=parts"]) == 0
    assert main(["checkpoint=parts", "total_steps=900"]) == 0
    assert "continues parts/checkpoints/step_450" in capsys.readouterr().out
    assert not list(Path().glob("outputs/*/*"))
    returns = [[row["return"] for row in rows(Path(name))] for name in ("whole", "parts")]
    assert returns[0] == returns[1]
    summaries = [json.loads(Path(name, "summary.json").read_text()) for name in ("whole", "parts")]
    assert summaries[0]["final_return"] == summaries[1]["final_return"]


def test_auto_starts_then_continues(capsys):
    command = [*SHORT, "checkpoint=auto"]
    assert main(command) == 0
    assert "starts" in capsys.readouterr().out
    run_dir = only_run()
    assert main([*command, "total_steps=600"]) == 0
    assert f"continues {run_dir}/checkpoints/step_450" in capsys.readouterr().out
    assert [c.step for c in checkpoints(run_dir)] == [450, 600]
    # Another configuration is another run.
    assert main([*command, "algo.tau=0.01"]) == 0
    assert "starts" in capsys.readouterr().out


def contents(folder):
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def test_no_run_replaces_another():
    """Neither a continued nor a new one: what lies there stays to the byte until the user says."""
    assert main([*SHORT, "hydra.run.dir=run"]) == 0
    before = contents("run")
    older = ["checkpoint=run/checkpoints/step_400", "total_steps=430"]
    for command, starts in (
        (older, r"run/checkpoints/step_400"),
        ([*SHORT, "hydra.run.dir=run"], "afresh"),
        ([*SHORT, "hydra.run.dir=run", "seed=1", "checkpoint=auto"], "afresh"),
    ):
        message = (
            rf"run holds a run up to step 450 and this one starts .*{starts}.*hydra\.run\.dir=DIR"
        )
        with pytest.raises(gear.InvalidArgument, match=message):
            main(command)
        assert contents("run") == before

    assert main([*older, "hydra.run.dir=other"]) == 0
    assert [c.step for c in checkpoints(Path("other"))] == [430]
    assert contents("run") == before
    # The branch is a run of its own: it goes on in its place.
    assert main(["checkpoint=other", "total_steps=440"]) == 0
    assert [c.step for c in checkpoints(Path("other"))] == [430, 440]
    with pytest.raises(gear.InvalidArgument, match="other holds a run up to step 440"):
        main([*older, "hydra.run.dir=other"])


def test_multirun():
    short = [*SHORT, "total_steps=210", "algo.learning_starts=200", "logger=csv"]
    assert main(["--multirun", "seed=0,1", *short]) == 0
    summaries = sorted(Path().glob("outputs/sweep/*/*/summary.json"))
    assert [json.loads(path.read_text())["seed"] for path in summaries] == [0, 1]


def test_configuration_is_shown(capsys):
    assert main(["--cfg", "job", "env=atari"]) == 0
    assert "id: ALE/Breakout-v5" in capsys.readouterr().out
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "env: atari, cartpole, halfcheetah, hopper, hunt, pendulum" in out
    assert not Path("outputs").exists()


def test_unknown_key_can_be_added():
    short = ["total_steps=40", "algo.learning_starts=40", "hydra.run.dir=run"]
    assert main([*SHORT, *short, "+note=first"]) == 0
    assert "note: first" in Path("run/config.yaml").read_text()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["env=foo"],
            r"\[train\] .*'env/foo' .*atari, cartpole, .*hopper, hunt, pendulum$",
        ),
        (["env.id=Foo-v0"], r"\[train\] cannot make environment env\.id=Foo-v0: .*doesn't exist"),
        (["+env.kwargs.x=1"], r"\[train\] cannot make environment env\.id=Pendulum-v1: .*'x'"),
        (["algo=dqn"], r"algo=dqn does not fit Pendulum-v1, .*: use algo=sac"),
        (["env=cartpole", "algo=sac"], r"algo=sac does not fit CartPole-v1, .*: use algo=dqn"),
        (["model=cnn"], r"model=cnn with algo=sac does not fit observations of shape \(3,\)"),
        (
            ["replay.capacity=100"],
            r"algo\.batch_size=256 .*: give at most replay.capacity=100",
        ),
        (["algo.gamma=1.5"], r"algo\.gamma=1\.5 is not possible: give a number, 0 < gamma <= 1$"),
        (
            ["algo.learning_starts=1", "algo.n_step=1"],
            r"learning_starts=1 .*more than algo\.n_step=1",
        ),
        (["seeed=1"], r"Could not override 'seeed'"),
        (["seed"], r"Error parsing override 'seed'"),
        (["checkpoint=nowhere"], r"no checkpoint at checkpoint=nowhere"),
    ],
)
def test_refusals(overrides, message):
    """One line that says what was given and what is allowed; nothing is left behind."""
    with pytest.raises(gear.InvalidArgument, match=message) as refused:
        main(overrides)
    assert "\n" not in str(refused.value)
    assert not list(Path().glob("outputs/*/*"))


@pytest.mark.parametrize(
    ("more", "error"),
    [([], "ZeroDivisionError: division by zero"), (["+env.kwargs.at_once=true"], "TypeError: ")],
    ids=["step", "constructor"],
)
def test_crash_in_a_users_environment_shows_where(more, error, capsys):
    """The traceback, and then one line; the exit code is 2."""
    gymnasium.register("Crashing-v0", Crashing)
    try:
        command = ["train", *SHORT, "env.id=Crashing-v0", "hydra.run.dir=run", *more]
        assert gear.cli.app.main(command) == 2
    finally:
        del gymnasium.registry["Crashing-v0"]
    lines = capsys.readouterr().err.splitlines()
    assert "Traceback (most recent call last):" in lines
    assert any("test_app.py" in line for line in lines)
    assert lines[-1].startswith(f"gear: [internal] {error}")


def test_a_folder_where_results_cannot_be_written():
    Path("outputs").touch()
    with pytest.raises(gear.IoError, match="folder for results cannot be made: outputs") as raised:
        main(SHORT)
    assert "start where you may write, or name a folder: hydra.run.dir=DIR" in str(raised.value)


def test_unknown_flag():
    assert main(["--nosuchflag"]) == 2


def test_checkpoint_of_another_configuration():
    short = ["total_steps=40", "algo.learning_starts=40", "hydra.run.dir=run"]
    assert main([*SHORT, *short]) == 0
    with pytest.raises(gear.InvalidArgument, match=r"algo\.gamma differs from the run at run/"):
        main(["checkpoint=run", "algo.gamma=0.5"])
    with pytest.raises(gear.InvalidArgument, match=r"env differs"):
        main(["checkpoint=run", "env=cartpole"])


OTHERS = (
    ("env.id=CartPole-v1", "algo=dqn", "+env.kwargs.sutton_barto_reward=true"),
    ("env=cartpole", "env.name=mine", "env.id=CartPole-v0", "env.num_envs=2"),
    ("env=hunt", "env.name=spread", "env.id=mpe2.simple_spread_v3", "+env.kwargs.N=2"),
    ("env=hunt", "algo=iql", "model=mlp"),
    ("+env.kwargs.note='it is, a \\'word\\''", "+env.kwargs.limits=[1,2.5,null]"),
    ("env=atari", "env.id=ALE/Pong-v5", "env.reward_clip=null", "env.stack=2"),
)


def test_suggested_commands_are_accepted(configure):
    """And play what was played."""
    from gear.train.record.report import suggestions

    common = ([], ["env=cartpole"], ["env=atari"], ["env=hopper", "replay=prioritized"])
    for overrides in (*common, *OTHERS):
        before = configure(*overrides)
        again, *others = suggestions(before, Path("my run"))
        for command in (again, *others):
            program, name, *words = shlex.split(command)
            assert (program, name) == ("gear", "train")
            configure(*words)
        after = configure(*shlex.split(again)[2:])
        assert after.env.kwargs == before.env.kwargs
        same = "id", "api", "frames", "stack", "num_envs", "reward_clip"
        assert [getattr(after.env, key) for key in same] == [
            getattr(before.env, key) for key in same
        ]
        assert (after.algo.name, after.model.name) == (before.algo.name, before.model.name)
        assert ("trust=true" in others[-1]) == ("mpe2.simple_spread_v3" in again or "note" in again)
        assert read_place(compose(*shlex.split(others[-1])[2:])) == read_place(compose())


def test_the_suggested_continuation_continues(capsys):
    """Of a run in an environment that only the user knows, in a folder with a space, too."""
    gymnasium.register("Mine-v0", Quiet)
    try:
        words = ["env.id=Mine-v0", "+env.kwargs.path=a/b", "hydra.run.dir='my run'"]
        words += ["total_steps=40", "algo.learning_starts=20", "logger=csv"]
        assert main([*SHORT, *words]) == 0
        said = capsys.readouterr().out
        (longer,) = re.findall(r"^  (gear train \S?checkpoint=.*)$", said, re.M)
        words = shlex.split(longer)
        assert "trust=true" in words
        assert gear.cli.app.main(words[1:]) == 0
        assert checkpoints(Path("my run"))[-1].step == 80
    finally:
        del gymnasium.registry["Mine-v0"]
