"""What was trained, used: `gear eval`, `gear data collect`, and the exported policy."""

from __future__ import annotations

import csv
import re
import shlex
import shutil
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch
from docs.documents import blocks, lines_of
from docs.ran import ran
from PIL import Image, ImageSequence
from train.composed import compose

import gear
from gear.cli import app
from gear.train.config import read
from gear.train.loop import Learner
from gear.train.models.exported import load_policy
from gear.train.ranks import Ranks
from gear.train.record.report import write_policy
from gear.train.tasks.evaluation import Evaluation

SHORT = ("algo.learning_starts=20", "algo.batch_size=8", "model.hidden=[8]", "total_steps=40")


@pytest.fixture(autouse=True)
def torch_as_it_was():
    yield
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)


def train(folder, *overrides):
    """A run of 40 steps with its checkpoint and its policy; its learner."""
    learner = Learner(read(compose(*SHORT, *overrides)))
    while learner.steps < 40:
        learner.step()
    learner.save(folder)
    write_policy(folder / "policy.pt", learner)
    return learner


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {
        env: (folder / env, train(folder / env, f"env={env}")) for env in ("pendulum", "cartpole")
    }


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def dots(monkeypatch):
    """An environment that draws: where it is is a white column; an episode has six steps."""

    class Dots(gymnasium.Env):
        metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
        observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, render_mode=None):
            self.render_mode = render_mode

        def reset(self, seed=None, options=None):
            self.at = 0
            return np.zeros(2, np.float32), {}

        def step(self, action):
            self.at += 1
            return np.full(2, self.at, np.float32), 1.0, self.at == 6, False, {}

        def render(self):
            assert self.render_mode == "rgb_array"
            frame = np.zeros((32, 48, 3), np.uint8)
            frame[:, 8 * self.at : 8 * self.at + 8] = 255
            return frame

    monkeypatch.setitem(
        gymnasium.registry, "Dots-v0", gymnasium.envs.registration.EnvSpec("Dots-v0", Dots)
    )
    return "env.id=Dots-v0"


# ---- gear eval ----


@pytest.mark.parametrize("env", ["pendulum", "cartpole"])
def test_eval_plays_what_the_run_evaluates(runs, env, tmp_path, capsys):
    """The same episodes as of an evaluation of the training, and all that is written is there."""
    folder, learner = runs[env]
    expected = Evaluation(learner.config, Ranks.single()).run(learner.algorithm, lambda: False)
    assert app.main(["eval", str(folder), "episodes=5", f"out={tmp_path}"]) == 0
    found = rows(tmp_path / "episodes.csv")
    assert [float(row["return"]) for row in found] == pytest.approx(expected.returns)
    assert [int(row["length"]) for row in found] == list(expected.lengths)
    said = capsys.readouterr().out
    assert f"{expected.mean_return:,.1f}" in said
    assert np.ptp(np.asarray(Image.open(tmp_path / "episode.png"))) > 100


def test_frames_and_film(dots, tmp_path, capsys):
    train(tmp_path / "run", "env=cartpole", dots)
    film = tmp_path / "film.gif"
    assert app.main(["eval", str(tmp_path / "run"), "episodes=2", f"video={film}"]) == 0
    with Image.open(film) as gif:
        frames = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(gif)]
    # Where the white column is in each frame: at the reset and after each of the six steps.
    columns = [np.flatnonzero(frame[0, :, 0] > 128) for frame in frames]
    assert [int(c[0]) if len(c) else 48 for c in columns] == [0, 8, 16, 24, 32, 40, 48]
    out = tmp_path / "run" / "eval" / "step_40-cartpole"
    assert [row["length"] for row in rows(out / "episodes.csv")] == ["6", "6"]
    assert (out / "episode.png").stat().st_size > 3000
    assert "no frames" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["env=cartpole"],
            r"has learned Pendulum-v1.*CartPole-v1 has.*2 discrete.*choose the env=",
        ),
        (["env=atlantis"], "atlantis"),
        (["episodes=0"], "episodes=0 is not possible: give a whole number of at least 1"),
        (["episode=3"], "episode=3 is not understood: give KEY=VALUE with one of env, episodes"),
        (["algo=dqn"], "algo=dqn is not understood"),
    ],
)
def test_eval_refuses_in_one_sentence(runs, words, said, tmp_path, capsys):
    folder, _ = runs["pendulum"]
    assert app.main(["eval", str(folder), *words, f"out={tmp_path / 'out'}"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(said, error), error
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_drawn_has_no_film(runs, monkeypatch, tmp_path, capsys):
    def without(*_):
        raise gymnasium.error.DependencyNotInstalled("no [screen] here")

    monkeypatch.setattr(gymnasium.Env, "render", without)
    monkeypatch.setattr(gymnasium.envs.classic_control.CartPoleEnv, "render", without)
    folder, _ = runs["cartpole"]
    words = ["eval", str(folder), "episodes=1", f"out={tmp_path / 'out'}"]
    assert app.main([*words, f"video={tmp_path / 'film.gif'}"]) == 2
    assert "cannot draw here: no [screen] here" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert app.main(words) == 0
    assert "no frames, CartPole-v1 cannot draw here: no [screen] here" in capsys.readouterr().out


@pytest.mark.slow
def test_checkpoint_of_two_ranks_on_one(launch, tmp_path, capsys):
    """`gear eval` plays on one rank what two have learned, as they evaluated it last."""
    two = launch.by_hand(
        2, *SHORT, "hydra.run.dir=two", "eval_every=40", "eval_episodes=3", "logger=csv"
    )
    launch.finish(*two)
    assert [process.returncode for process in two] == [0, 0]
    assert app.main(["eval", str(tmp_path / "two"), "episodes=3"]) == 0
    found = rows(tmp_path / "two" / "eval" / "step_40-pendulum" / "episodes.csv")
    summary = (tmp_path / "two" / "summary.json").read_text()
    mean = np.mean([float(row["return"]) for row in found])
    assert float(re.search(r'"eval_return": (\S+),', summary)[1]) == pytest.approx(mean, rel=1e-4)


# ---- gear data collect ----


@pytest.mark.parametrize(("env", "policy"), [("pendulum", "random"), ("cartpole", "checkpoint")])
def test_collected_data_is_whole_episodes_to_learn_from(runs, env, policy, tmp_path, monkeypatch):
    out = tmp_path / "data"
    given = [f"env={env}", "steps=30", f"out={out}"]
    if policy == "checkpoint":
        given.append(f"policy={runs[env][0]}")
    assert app.main(["data", "collect", *given]) == 0
    with gear.ReplayBuffer.load(out) as buffer:
        ends = [episode.state for episode in buffer.episodes()]
        steps = [len(episode.ids) for episode in buffer.episodes()]
    assert "open" not in ends
    assert sum(steps[:-1]) < 30 <= sum(steps)
    offline = Learner(
        read(
            compose(
                *(f"env={env}", "data=saved", f"data.path={out}", "model.width=8"),
                *("model.layers=1", "model.heads=1", "algo.context=2", "algo.batch_size=4"),
            )
        )
    )
    offline.step()
    assert offline.counters.updates == 1
    offline.close()


@pytest.mark.parametrize(
    "words",
    [
        ["env=cartpole", "env.id=Pendulum-v1"],
        ["env=pendulum", "+env.kwargs.g=9.81", "env.stack=2"],
    ],
    ids=["id", "kwargs"],
)
def test_what_is_said_after_collecting_names_the_environment(words, tmp_path, capsys):
    """The one that was played, of which the data are."""
    out = tmp_path / "my data"
    assert app.main(["data", "collect", *words, "steps=5", f"out={out}"]) == 0
    (command,) = re.findall(r"^  gear train (.*)$", capsys.readouterr().out, re.M)
    said = read(compose(*shlex.split(command)))
    assert said.data.path == str(out)
    played = read(compose(*words))
    assert said.env == played.env


def test_nothing_is_advised_that_would_be_refused(tmp_path, capsys):
    """Nothing here learns from saved data of a team."""
    out = tmp_path / "data"
    assert app.main(["data", "collect", "env=hunt", "steps=5", f"out={out}"]) == 0
    said = capsys.readouterr().out
    assert "gear train" not in said
    assert "no algorithm learns from a team's saved data" in said


def test_collect_acts_as_it_was_told(runs, tmp_path):
    """Greedily by default; a share of random actions; the same seed gives the same data."""
    folder, learner = runs["pendulum"]
    found = {}
    for name, words in {"greedy": [], "again": [], "random": ["random=1.0"]}.items():
        out = tmp_path / name
        assert (
            app.main(["data", "collect", f"policy={folder}", "steps=5", f"out={out}", *words]) == 0
        )
        with gear.ReplayBuffer.load(out) as buffer:
            ids = buffer.episodes()[0].ids
            steps = buffer.collect(
                ids, {"obs": gear.Step(), "action": gear.Step()}, framework="numpy"
            )
            found[name] = (np.array(steps["obs"]), np.array(steps["action"]))
    obs, action = found["greedy"]
    expected = [learner.algorithm.player()(one[None], 0.0) for one in obs[:20]]
    np.testing.assert_allclose(action[:20], expected, atol=1e-5)
    np.testing.assert_array_equal(found["again"][1], action)
    assert found["random"][1].std() == pytest.approx(3**-0.5, abs=0.1)  # uniform in -1 ... 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["out=."], r"out=\. is there"),
        (["steps=many"], "steps=many is not possible"),
        (["random=2"], "random=2 is not possible"),
        (["policy=nowhere"], "no checkpoint at checkpoint=nowhere"),
    ],
)
def test_collect_refuses_in_one_sentence(runs, words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    policy = [f"policy={runs['pendulum'][0]}"]
    assert app.main(["data", "collect", *policy, *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(said, error), error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["env=cartpole", "random=7"], "random=7 is not possible with policy=random, whose"),
        (["env=cartpole", "policy=random", "device=foo"], "device=foo is not possible with policy"),
        ([], "env is missing: .* give env=NAME, as env=pendulum, or policy=CHECKPOINT"),
        (["policy=random", "env.id=CartPole-v1"], "env is missing"),
    ],
)
def test_random_actions_need_an_environment_and_nothing_else(
    words, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert app.main(["data", "collect", *words, "steps=5"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(said, error), error
    assert not list(tmp_path.iterdir())


# ---- policy.pt ----


@pytest.mark.parametrize("env", ["pendulum", "cartpole"])
def test_exported_policy_acts_as_the_algorithm(runs, env):
    folder, learner = runs[env]
    policy = load_policy(folder / "policy.pt")
    assert f"name: {env}" in policy.config
    size = 3 if env == "pendulum" else 4
    for obs in np.random.default_rng(0).normal(size=(20, size)).astype(np.float32):
        expected = learner.algorithm.player()(obs[None], 0.0)
        # Pendulum's torque is in -2 ... 2, an action in -1 ... 1.
        scale = 2.0 if env == "pendulum" else 1
        np.testing.assert_allclose(policy(obs), scale * np.asarray(expected), rtol=1e-5)


def test_the_lines_of_the_document(runs, tmp_path):
    """They play by the exported policy, and import nothing of the trainer but its networks."""
    (block,) = blocks("python", "exported")
    assert len([line for line in block.code.splitlines() if line.strip()]) <= 5
    code = block.code + (
        "import sys\n"
        "assert env.action_space.contains(action), action\n"
        "assert not {'hydra', 'gear.train.loop', 'gear.train.config'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=runs["pendulum"][0],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_commands_of_the_document(runs, tmp_path, monkeypatch):
    """On a run of Pendulum's, which the document calls RUN; what trains is cut short."""
    shutil.copytree(runs["pendulum"][0], tmp_path / "RUN")
    (tmp_path / "RUN/checkpoints/step_40").rename(tmp_path / "RUN/checkpoints/step_2000")
    (tmp_path / "RUN/policy.pt").rename(tmp_path / "RUN/best_policy.pt")
    monkeypatch.chdir(tmp_path)
    commands = [line for block in blocks("bash", "played") for line in lines_of(block)]
    assert len(commands) == 6
    for command in commands:
        program, *words = shlex.split(command)
        short = ["total_steps=2", "algo.batch_size=4", "model.width=8"] * (words[0] == "train")
        assert (program, app.main([*words, *short])) == ("gear", 0), command
        ran(command, shlex.join([program, *words, *short]))


@pytest.mark.parametrize(("content", "said"), [("7", "7"), ("text", "another file")])
def test_another_file_is_no_policy(content, said, tmp_path, capsys):
    path = tmp_path / "policy.pt"
    if content == "text":
        path.write_text("a policy\n")
    else:
        torch.save({"format": int(content)}, path)
    with pytest.raises(gear.CorruptData, match=rf"is no policy of format 1 but {said}: give"):
        load_policy(path)
    assert app.main(["eval", str(path)]) == 2
    assert "is no policy of format 1" in capsys.readouterr().err


def test_a_policy_by_itself_is_played(runs, tmp_path):
    """As the checkpoint of the same step, and experience is collected with it."""
    folder, _ = runs["cartpole"]
    policy = folder / "policy.pt"
    for of in (folder, policy):
        out = tmp_path / of.name
        assert app.main(["eval", str(of), "episodes=3", f"out={out}"]) == 0
    assert rows(tmp_path / "policy.pt" / "episodes.csv") == rows(
        tmp_path / folder.name / "episodes.csv"
    )
    words = ["steps=20", f"out={tmp_path / 'collected'}"]
    assert app.main(["data", "collect", f"policy={policy}", *words]) == 0
    assert app.main(["eval", str(policy), "env=pendulum"]) == 2
