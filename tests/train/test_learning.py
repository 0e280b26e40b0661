"""Each algorithm and each kind of environment, in runs as short as they can be."""

from __future__ import annotations

import math
import shlex

import gymnasium
import numpy as np
import pytest
import torch
from docs.documents import documented

from gear.train.loop import Learner
from gear.train.tasks.evaluation import Evaluation


def run(cfg):
    learner = Learner(cfg)
    while learner.counters.env_steps < cfg.total_steps:
        learner.step()
    return learner


def greedy_return(learner):
    """Mean of `eval_episodes` episodes, as the run would evaluate its networks."""
    return Evaluation(learner.config, learner.ranks).run(learner.algorithm, lambda: False).value


def assert_learned(learner):
    metrics = learner.algorithm.metrics()
    assert metrics
    assert all(math.isfinite(value) for value in metrics.values()), metrics
    for module in learner.algorithm.modules.values():
        assert all(torch.isfinite(p).all() for p in module.parameters())


@pytest.mark.parametrize("replay", ["uniform", "prioritized"])
@pytest.mark.parametrize("n_step", [1, 3])
def test_sac_on_pendulum(configure, replay, n_step):
    cfg = configure(
        "total_steps=500",
        "algo.learning_starts=100",
        "algo.batch_size=32",
        f"algo.n_step={n_step}",
        f"replay={replay}",
    )
    learner = run(cfg)
    assert learner.counters.updates == 401
    assert len(learner.buffer) == 500
    assert_learned(learner)


@pytest.mark.slow
@pytest.mark.needs("mujoco")
@pytest.mark.parametrize("env", ["hopper", "halfcheetah"])
def test_sac_on_mujoco(configure, env):
    learner = run(
        configure(
            f"env={env}",
            "total_steps=200",
            "algo.learning_starts=150",
            "algo.batch_size=32",
            "model.hidden=[32]",
            "replay.capacity=10000",
        )
    )
    assert_learned(learner)


@pytest.mark.slow
@pytest.mark.nightly
def test_double_dqn_learns_cartpole(configure):
    """By the words of docs/results.md, as far as it takes. Random play balances for 22 steps, 500
    are the most. That SAC learns Pendulum, tools/check_fresh_machine.sh asserts of `make demo`."""
    command = documented(r"gear train env=cartpole seed=0 replay=uniform .*")
    learner = Learner(configure(*shlex.split(command)[2:], "eval_episodes=20"))
    found = 0.0
    while found < 400 and learner.steps < learner.config.total_steps:
        learner.step()
        if learner.steps % 1000 == 0 and learner.steps >= 8000:
            found = greedy_return(learner)
    assert np.mean(learner.counters.returns[:10]) < 60
    assert found >= 400
    assert_learned(learner)
    learner.close()


@pytest.mark.slow
@pytest.mark.needs("ale_py", "cv2")
@pytest.mark.parametrize("n_step", [1, 3])
def test_double_dqn_on_atari_frames(configure, n_step):
    cfg = configure(
        "env=atari",
        "total_steps=300",
        "algo.learning_starts=200",
        "algo.batch_size=8",
        f"algo.n_step={n_step}",
        "model.hidden=[32]",
        "replay.capacity=1000",
    )
    learner = run(cfg)
    batch = next(learner.loader)
    assert batch["obs"].shape == (8, 4 + n_step, 84, 84)
    assert batch["obs"].dtype == torch.uint8
    # One frame a step is stored; stacks are windows.
    assert learner.buffer.schema["obs"].shape == (84, 84)
    assert_learned(learner)


def test_double_dqn_on_stacked_frames(configure, monkeypatch):
    """The convolutions, on frames that no emulator draws."""

    class Frames(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)
        action_space = gymnasium.spaces.Discrete(3)

        def reset(self, seed=None, options=None):
            self.rng = np.random.default_rng(seed)
            return self.rng.integers(255, size=(84, 84), dtype=np.uint8), {}

        def step(self, action):
            obs = self.rng.integers(255, size=(84, 84), dtype=np.uint8)
            return obs, float(action), False, False, {}

    monkeypatch.setitem(
        gymnasium.registry, "Frames-v0", gymnasium.envs.registration.EnvSpec("Frames-v0", Frames)
    )
    cfg = configure(
        *("env=atari", "env.id=Frames-v0", "env.frames=false", "env.stack=2", "model.hidden=[4]"),
        *("total_steps=20", "algo.learning_starts=12", "algo.batch_size=4", "algo.n_step=2"),
        "replay.capacity=64",
    )
    learner = run(cfg)
    batch = next(learner.loader)
    assert batch["obs"].shape == (4, 4, 84, 84)
    assert batch["obs"].dtype == torch.uint8
    # One frame a step is stored; stacks are windows.
    assert learner.buffer.schema["obs"].shape == (84, 84)
    assert learner.counters.updates == 3
    assert_learned(learner)


def test_view_is_the_stored_window(configure):
    """The network acts on what it learns from: the same stack, the same zeros at the head."""
    cfg = configure("env=cartpole", "env.stack=4", "algo.learning_starts=10", "total_steps=200")
    learner = Learner(cfg)
    views = []
    for _ in range(60):
        views.append(learner.envs[0].view.copy())
        learner.step()
    batch = next(learner.loader)
    stacks = {view.tobytes() for view in views}
    stored = batch["obs"][:, :4].numpy()
    assert all(stack.tobytes() in stacks for stack in stored)
    assert any((stack[:3] == 0).all() for stack in stored)
