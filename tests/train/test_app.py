"""`gear train` as a user meets it: what it writes, what it refuses, how it continues."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import gear
from gear.train.app import main
from gear.train.checkpoint import checkpoints

SHORT = [
    "total_steps=450",
    "algo.learning_starts=350",
    "algo.batch_size=16",
    "model.hidden=[16]",
    "checkpoint_every=200",
]
KEYS = {
    *("final_return", "env_steps", "env_steps_per_s", "samples_per_s", "replay_share", "seed"),
    *("seconds", "episodes", "updates"),
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


def test_continue_from_an_older_checkpoint():
    """In its own directory it replaces what came after; in another it leaves the first alone."""
    assert main([*SHORT, "hydra.run.dir=run"]) == 0
    older = ["checkpoint=run/checkpoints/step_400", "total_steps=430"]
    assert main([*older, "hydra.run.dir=other"]) == 0
    assert [c.step for c in checkpoints(Path("other"))] == [430]
    assert [c.step for c in checkpoints(Path("run"))] == [400, 450]
    assert main(older) == 0
    assert [c.step for c in checkpoints(Path("run"))] == [400, 430]
    assert [row["step"] for row in rows(Path("run"))] == ["200", "400"]


def test_multirun():
    short = [*SHORT, "total_steps=210", "logger=csv"]
    assert main(["--multirun", "seed=0,1", *short]) == 0
    summaries = sorted(Path().glob("outputs/sweep/*/*/summary.json"))
    assert [json.loads(path.read_text())["seed"] for path in summaries] == [0, 1]


def test_configuration_is_shown(capsys):
    assert main(["--cfg", "job", "env=atari"]) == 0
    assert "id: ALE/Breakout-v5" in capsys.readouterr().out
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "env: atari, cartpole, halfcheetah, hopper, pendulum" in out
    assert not Path("outputs").exists()


def test_unknown_key_can_be_added():
    assert main([*SHORT, "total_steps=120", "+note=first", "hydra.run.dir=run"]) == 0
    assert "note: first" in Path("run/config.yaml").read_text()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["env=foo"], r"\[train\] .*'env/foo' .*atari, cartpole, halfcheetah, hopper, pendulum$"),
        (["env.id=Foo-v0"], r"\[train\] cannot make environment env\.id=Foo-v0: .*doesn't exist"),
        (["+env.kwargs.x=1"], r"\[train\] cannot make environment env\.id=Pendulum-v1: .*'x'"),
        (["algo=dqn"], r"algo=dqn does not fit Pendulum-v1, .*: use algo=sac"),
        (["env=cartpole", "algo=sac"], r"algo=sac does not fit CartPole-v1, .*: use algo=dqn"),
        (["model=cnn"], r"model=cnn with algo=sac does not fit observations of shape \(3,\)"),
        (
            ["replay.capacity=100"],
            r"algo\.batch_size=256 .*: allowed is at most replay.capacity=100",
        ),
        (["algo.n_step=0"], r"algo\.n_step=0 is not possible: allowed is a whole number of at lea"),
        (["algo.gamma=1.5"], r"algo\.gamma=1\.5 is not possible: allowed is 0 < gamma <= 1"),
        (["replay.beta=2"], r"replay\.beta=2 is not possible: allowed is 0 <= beta <= 1"),
        (["algo.gamma=high"], r"algo\.gamma=high is not possible: allowed is a number"),
        (["seed=abc"], r"seed=abc is not possible"),
        (["optim.name=sgd"], r"optim\.name=sgd is not possible: allowed is adam, adamw"),
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


def test_unknown_flag():
    assert main(["--nosuchflag"]) == 2


def test_checkpoint_of_another_configuration():
    assert main([*SHORT, "hydra.run.dir=run", "total_steps=120"]) == 0
    with pytest.raises(gear.InvalidArgument, match=r"algo\.gamma differs from the run at run/"):
        main(["checkpoint=run", "algo.gamma=0.5"])
    with pytest.raises(gear.InvalidArgument, match=r"env differs"):
        main(["checkpoint=run", "env=cartpole"])


def test_suggested_commands_are_accepted(configure):
    from gear.train.report import suggestions
    from gear.train.validate import validate

    for overrides in ([], ["env=cartpole"], ["env=atari"], ["env=hopper", "replay=prioritized"]):
        for command in suggestions(configure(*overrides), Path("run")):
            program, name, *words = command.split()
            assert (program, name) == ("gear", "train")
            validate(configure(*words))
