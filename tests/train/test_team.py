"""Several agents: the bundled hunt, PettingZoo's parallel API, what replay holds, and playing."""

from __future__ import annotations

import csv
import math
import re
import shlex
import sys
from types import ModuleType

import gymnasium
import numpy as np
import pytest
import torch
from docs.documents import blocks, lines_of
from docs.ran import ran
from PIL import Image
from train.composed import compose

import gear
from gear.cli import app
from gear.train.algo import make_algorithm
from gear.train.config import read
from gear.train.loop import Learner
from gear.train.models.exported import load_policy
from gear.train.models.team import AgentTransformer
from gear.train.ranks import Ranks
from gear.train.record import checkpoint
from gear.train.record.report import write_policy
from gear.train.tasks.evaluation import Evaluation
from gear.train.tasks.hunt import ALONE, CATCH, MOVE, STAY, STRIKE, Hunt
from gear.train.tasks.make import make_environment

SHORT = ("algo.learning_starts=40", "algo.batch_size=8", "env.num_envs=2", "algo.train_every=2")
TINY = ("model.width=8", "model.heads=2")


@pytest.fixture(autouse=True)
def torch_as_it_was():
    yield
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)


# ---- the hunt ----


def placed(hunters, prey, **more):
    """A hunt with hunters and prey at these cells, and what its next step would be told."""
    hunt = Hunt(side=4, hunters=len(hunters), **more)
    hunt.reset(seed=0)
    hunt._at, hunt._prey = np.array(hunters), np.array(prey)
    return hunt


def masks(hunt):
    return [info["action_mask"].tolist() for info in hunt._seen()[1].values()]


def test_what_is_available():
    """Stay always; moves onto free cells of the board; to strike beside the prey."""
    hunt = placed([(0, 0), (0, 1), (3, 2)], (1, 1))
    assert masks(hunt) == [
        [True, False, True, False, False, False],
        [True, False, False, False, True, True],
        [True, True, False, True, True, False],
    ]


@pytest.mark.parametrize(
    ("actions", "rewards"),
    [
        ((STRIKE, STRIKE, STAY), [CATCH] * 3),
        ((STRIKE, STAY, STAY), [ALONE] * 3),
        ((STAY, STAY, 1), [0, 0, MOVE]),
        ((STRIKE, STRIKE, 1), [CATCH, CATCH, CATCH + MOVE]),
        ((STAY, STAY, STRIKE), [0, 0, 0]),  # it is far away: that is to stay
    ],
)
def test_two_must_strike_at_once(actions, rewards):
    hunt = placed([(0, 1), (1, 0), (3, 3)], (1, 1))
    told = dict(zip(hunt.agents, actions, strict=True))
    _, found, terminated, truncated, _ = hunt.step(told)
    assert list(found.values()) == pytest.approx(rewards)
    assert not any(terminated.values())
    assert not any(truncated.values())


def test_two_hunters_do_not_share_a_cell():
    """Both want (0, 1): the first has it."""
    hunt = placed([(0, 0), (0, 2)], (3, 3))
    hunt.step(dict(zip(hunt.agents, (4, 3), strict=True)))
    assert hunt._at.tolist() == [[0, 1], [0, 2]]


def test_hunt_stays_on_the_board_and_ends():
    """The prey moves to a free cell beside it; all follows from the seed."""
    seen = []
    for _ in range(2):
        chance, hunt = np.random.default_rng(5), Hunt(side=3, hunters=3, steps=30)
        (obs, infos), steps = hunt.reset(seed=7), []
        while hunt.agents:
            before = hunt._prey.copy()
            told = {a: chance.choice(np.flatnonzero(i["action_mask"])) for a, i in infos.items()}
            obs, rewards, _, truncated, infos = hunt.step(told)
            caught = max(rewards.values()) > 0.5
            assert caught or np.abs(hunt._prey - before).sum() <= 1
            cells = np.concatenate([hunt._at, hunt._prey[None]])
            assert len(np.unique(cells, axis=0)) == 4
            assert cells.min() >= 0
            assert cells.max() < 3
            assert all(hunt.observation_space(a).contains(o) for a, o in obs.items())
            steps.append((obs["hunter_1"].tolist(), rewards["hunter_2"]))
        assert len(steps) == 30
        assert all(truncated.values())
        seen.append(steps)
    assert seen[0] == seen[1]


def test_observation_says_where_all_are():
    hunt = placed([(0, 0), (1, 2), (3, 3)], (2, 1))
    obs, _ = hunt._seen()
    expected = [1, 2, -1, -2, 2, 1, 1, -1]  # own place, the others and the prey from there
    np.testing.assert_allclose(obs["hunter_1"], [*(np.array(expected) / 4), 0, 1, 0])


@pytest.mark.needs("pettingzoo")
# Its tests import a game of its own in a way that it deprecates.
@pytest.mark.filterwarnings("ignore:The old environment creation API:DeprecationWarning")
def test_pettingzoo_takes_it():
    """By its own test of the parallel API."""
    from pettingzoo.test import parallel_api_test

    parallel_api_test(Hunt(), num_cycles=60)


# ---- the adapter ----


@pytest.fixture
def drones(monkeypatch):
    """A module with a parallel environment: continuous actions, and an agent that leaves."""

    class Drones:
        metadata = {"name": "drones"}
        possible_agents = ["a", "b"]
        told: list = []

        def observation_space(self, agent):
            return gymnasium.spaces.Box(-9, 9, (2, 1), np.float32)

        def action_space(self, agent):
            return gymnasium.spaces.Box(np.array([0, -2], np.float32), np.array([4, 2], np.float32))

        def reset(self, seed=None, options=None):
            self.agents, self.at = list(self.possible_agents), 0
            return {a: np.full((2, 1), 1, np.float32) for a in self.agents}, {}

        def step(self, actions):
            assert set(actions) == set(self.agents)
            self.told.append(actions)
            self.at += 1
            there = self.agents
            ended = {a: (self.at == 2 and a == "b") or self.at == 4 for a in there}
            self.agents = [a for a in there if not ended[a]]
            obs = {a: np.full((2, 1), self.at + 1, np.float32) for a in there if not ended[a]}
            rewards = {a: float(self.at) * (1 if a == "a" else 10) for a in there}
            return obs, rewards, ended, dict.fromkeys(there, False), {}

        def close(self):
            pass

    module = ModuleType("drones")
    module.parallel_env = Drones
    monkeypatch.setitem(sys.modules, "drones", module)
    return Drones


def test_adapter_of_continuous_actions_and_agents_that_leave(drones):
    env = make_environment(
        read(compose("env=hunt", "env.id=drones", "env.stack=2", "env.reward_clip=15")).env, 0
    )
    assert (env.num_agents, env.obs_shape, env.action_dim, env.num_actions) == (2, (2, 2), 2, 0)
    assert [column.name for column in env.columns] == ["obs", "action", "reward", "terminated"]
    env.reset(0)
    action = np.array([[-1, 0], [1, 0.5]], np.float32)
    found = [env.step(action) for _ in range(4)]
    # The mean of both, unclipped; b earns nothing when it has left.
    assert found == [(5.5, False, False), (11, False, False), (1.5, False, False), (2, True, False)]
    assert {k: v.tolist() for k, v in drones.told[0].items()} == {"a": [0, 0], "b": [4, 1]}
    assert set(drones.told[2]) == {"a"}
    assert env.learning_reward(2.0).tolist() == [4, 0]
    np.testing.assert_array_equal(env.view, [[[4, 4], [0, 0]], [[0, 0], [0, 0]]])
    env.reset(1)
    env.step(action), env.step(action)
    assert env.learning_reward(11.0).tolist() == [2, 15]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["env.id=nowhere_at_all"], r"env.id=nowhere_at_all: No module named.*give the module of"),
        (["env.id=json"], "the module has no parallel_env"),
        (["+env.kwargs.side=2"], r"side=2, hunters=3.*allowed are a side of 3"),
        (["+env.kwargs.size=2"], "unexpected keyword argument 'size'"),
        (["env.frames=true"], "env.frames=true is not possible: give false"),
        (["algo=dqn", "model=mlp"], "algo=dqn does not fit.*3 agents.*use algo=mat or algo=iql"),
        (["algo=iql"], "model.name=agents is not possible: give mlp"),
        (["env=cartpole", "algo=mat", "model=agents"], "algo=mat does not fit.*use algo=dqn"),
        (["env.id=drones", "algo=iql", "model=mlp"], "algo=iql does not fit drones.*use algo=mat"),
        (["env.id=unlike"], r"the agents of unlike observe .* pad them"),
    ],
)
def test_what_does_not_fit_is_refused(words, said, drones, monkeypatch):
    class Unlike(drones):
        def observation_space(self, agent):
            return gymnasium.spaces.Box(0, 1, (1 if agent == "a" else 2,), np.float32)

    module = ModuleType("unlike")
    module.parallel_env = Unlike
    monkeypatch.setitem(sys.modules, "unlike", module)

    def make():
        config = read(compose("env=hunt", *words))
        make_algorithm(config, make_environment(config.env, 0), Ranks.single())

    with pytest.raises(gear.InvalidArgument, match=said):
        make()


# ---- what acts, and what is stored ----


def network(discrete=True):
    torch.manual_seed(0)
    made = AgentTransformer(
        num_agents=3,
        obs_size=9 if discrete else 4,
        num_actions=5 if discrete else 0,
        action_dim=0 if discrete else 2,
        bins=4,
        width=8,
        layers=1,
        heads=2,
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
    obs = torch.randn(40, 1, 3, 9 if discrete else 4)
    if discrete:
        obs[..., 4:] = (torch.rand(40, 1, 3, 5) < 0.4).float()
        obs[..., 4] = 1.0
    return made, obs


@pytest.mark.parametrize("discrete", [True, False])
def test_choices_are_made_one_after_the_other(discrete):
    """Each is the best of its place, given those before it; what comes later changes nothing."""
    made, obs = network(discrete)
    with torch.no_grad():
        choices = made.choose(obs)
        values = made(obs, choices)
        other = choices.clone()
        other[:, 1] = 1 - other[:, 1].clamp(max=1)
        others = made(obs, other)
    torch.testing.assert_close(values.argmax(2), choices)
    torch.testing.assert_close(others[:, :2], values[:, :2])
    assert (others[:, 2] != values[:, 2]).any(1).all()


def test_only_what_is_available_is_chosen_and_explored():
    made, obs = network()
    explores = torch.rand(40, 3) < 0.5
    chance = torch.rand(40, 3, 5)
    with torch.no_grad():
        choices = made.choose(obs, explores, chance)
        values = made(obs, choices)
    mask = obs[:, 0, :, 4:] > 0
    assert mask.gather(2, choices[:, :, None]).all()
    likeliest = torch.where(mask, chance, -1.0).argmax(2)
    torch.testing.assert_close(choices, torch.where(explores, likeliest, values.argmax(2)))


def test_continuous_actions_are_the_middles_of_bins():
    made, _ = network(discrete=False)
    choices = torch.tensor([[0, 1, 2, 3, 0, 3]])
    actions = made.actions(choices)
    expected = [[[-0.75, -0.25], [0.25, 0.75], [-0.75, 0.75]]]
    torch.testing.assert_close(actions, torch.tensor(expected))
    torch.testing.assert_close(made.choices(actions), choices)
    edges = torch.tensor([[[-1.0, 1.0], [0.0, -0.01], [0.5, 0.49]]])
    assert made.choices(edges).tolist() == [[0, 3, 2, 1, 3, 2]]


@pytest.mark.parametrize("algo", ["mat", "iql"])
def test_columns_hold_what_happened(algo):
    """An episode of the buffer, played again: all columns, step by step, and the closing one."""
    sizes = TINY if algo == "mat" else ("model.hidden=[8]",)
    model = "agents" if algo == "mat" else "mlp"
    config = read(compose("env=hunt", f"algo={algo}", f"model={model}", *SHORT, *sizes))
    learner = Learner(config)
    while learner.steps < 120:
        learner.step()
    assert learner.counters.updates == 41
    assert all(math.isfinite(value) for value in learner.algorithm.metrics().values())
    episode = learner.buffer.episodes()[0]
    names = ("obs", "available", "action", "reward", "terminated")
    steps = learner.buffer.collect(
        episode.ids, dict.fromkeys(names, gear.Step()), framework="numpy"
    )
    env = make_environment(config.env, config.seed)
    env.reset(0)
    total = 0.0
    for t in range(25):
        shown = env.stored(env.obs)
        np.testing.assert_array_equal(steps["obs"][t], shown["obs"])
        np.testing.assert_array_equal(steps["available"][t], shown["available"])
        assert steps["available"][t].shape == (3, 6)
        assert np.take_along_axis(shown["available"], steps["action"][t][:, None], 1).all()
        reward, terminated, truncated = env.step(steps["action"][t])
        total += reward
        np.testing.assert_array_equal(steps["reward"][t], env.learning_reward(reward))
        assert not steps["terminated"][t]
    assert (terminated, truncated) == (False, True)
    closing = gear.Window(1, 2)
    last = learner.buffer.collect(
        episode.ids[-1:], {"obs": closing, "available": closing}, framework="numpy"
    )
    np.testing.assert_array_equal(last["available"][0, 0], env.stored(env.obs)["available"])
    assert learner.counters.returns[0] == pytest.approx(total)
    learner.close()


def test_a_continued_run_is_bit_equal(tmp_path):
    """Of a team, in the middle of two episodes."""
    config = read(compose("env=hunt", *SHORT, *TINY))
    digests = []
    for again in (False, True):
        learner = Learner(config)
        while learner.steps < 110:
            learner.step()
        if again:
            learner.save(tmp_path)
            learner.close()
            learner = Learner(config, start=checkpoint.find(tmp_path))
        while learner.steps < 160:
            learner.step()
        digests.append((learner.algorithm.digest(), learner.counters.returns))
        learner.close()
    assert digests[0] == digests[1]


def test_transformer_learns_to_strike_together():
    """By 320 updates, on a small board: from each of six seeds, where 160 were enough for some
    alone, and for none on every processor. Who acts at random loses 2 an episode."""
    sizes = (*("model.width=16", "model.layers=1", "model.heads=2"), "+env.kwargs.side=3")
    pace = ("algo.learning_starts=160", "algo.epsilon_steps=800", "algo.target_every=20")
    more = ("total_steps=2720", "algo.batch_size=32", "optim.lr=3e-3", "eval_episodes=4")
    config = read(compose("env=hunt", *sizes, *pace, *more))
    learner = Learner(config)
    evaluation = Evaluation(config, learner.ranks)
    before = evaluation.run(learner.algorithm, lambda: False).mean_return
    while learner.steps < config.total_steps:
        learner.step()
    assert learner.counters.updates == 321
    after = evaluation.run(learner.algorithm, lambda: False).mean_return
    assert before < -1
    assert after > 0
    evaluation.close()
    learner.close()


@pytest.mark.slow
@pytest.mark.needs("mpe2")
def test_the_commands_of_the_document_on_mpe(tmp_path, monkeypatch):
    """PettingZoo's particles, discrete and continuous."""
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("bash", "mpe")
    for command in lines_of(block)[1:]:
        _, *words = shlex.split(command)
        short = ["total_steps=300", "algo.learning_starts=200", "checkpoint_every=0", *TINY]
        assert app.main([*words, *short]) == 0, command
        ran(command, shlex.join(["gear", *words, *short]))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hunt")
    learner = Learner(read(compose("env=hunt", *SHORT, *TINY)))
    while learner.steps < 60:
        learner.step()
    learner.save(folder)
    write_policy(folder / "policy.pt", learner)
    return folder, learner


def test_eval_plays_a_team(run, tmp_path, capsys):
    folder, _ = run
    film = tmp_path / "film.gif"
    words = ["eval", str(folder), "episodes=2", f"out={tmp_path}", f"video={film}"]
    assert app.main(words) == 0
    with (tmp_path / "episodes.csv").open(newline="") as file:
        assert [row["length"] for row in csv.DictReader(file)] == ["25", "25"]
    assert np.ptp(np.asarray(Image.open(tmp_path / "episode.png"))) > 100
    assert film.stat().st_size > 1000
    assert "MAT on gear.train.tasks.hunt" in capsys.readouterr().out


def test_policy_of_a_team_acts_as_the_algorithm(run):
    folder, learner = run
    policy, env = load_policy(folder / "policy.pt"), make_environment(learner.config.env, 3)
    env.reset(0)
    for _ in range(10):
        expected = learner.algorithm.player()(env.view, 0.0)
        found = policy(env.obs)
        np.testing.assert_array_equal(found, expected)
        env.step(found)


def test_collected_data_of_a_team(run, tmp_path, capsys):
    folder, _ = run
    for policy in (f"policy={folder}", "policy=random"):
        out = tmp_path / policy[-6:].strip("/")
        words = ["data", "collect", "env=hunt", policy, "steps=30", f"out={out}"]
        assert app.main(words) == 0
        with gear.ReplayBuffer.load(out) as buffer:
            assert len(buffer) == 50
            assert buffer.schema["available"].shape == (3, 6)
    words = ["train", "env=hunt", "data=saved", f"data.path={out}", "algo=bc", "model=mlp"]
    assert app.main(words) == 2
    said = capsys.readouterr().err
    assert re.search("algo=bc does not fit.*3 agents.*use algo=mat or algo=iql", said), said
