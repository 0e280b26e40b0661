"""Greedy episodes beside the training."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from train.on_threads import on_threads

from gear.train.loop import Learner
from gear.train.ranks import Ranks
from gear.train.tasks.evaluation import Evaluation
from gear.train.tasks.seeding import rank_seed

SHORT = ("algo.learning_starts=20", "algo.batch_size=8", "model.hidden=[8]", "total_steps=60")


def never():
    return False


def trained(config, eval_every):
    """The networks after 60 steps, with an evaluation now and then."""
    learner = Learner(config)
    evaluation = Evaluation(config, learner.ranks)
    for step in range(1, 61):
        learner.step()
        if eval_every and step % eval_every == 0:
            assert evaluation.run(learner.algorithm, never)
    return learner.algorithm.digest(), learner.counters.returns


@pytest.mark.parametrize("env", ["pendulum", "cartpole"])
def test_training_is_bit_equal_with_and_without(configure, env):
    config = configure(f"env={env}", *SHORT, "eval_episodes=2")
    assert trained(config, 7) == trained(config, 0)


def test_sac_acts_by_the_mean_and_dqn_by_the_greatest(configure):
    sac = Learner(configure(*SHORT)).algorithm
    view = np.array([[0.1, -0.2, 0.3]], np.float32)
    actions = {float(sac.player()(view, 0.0)[0]) for _ in range(5)}
    noisy = [float(sac.act(view[None], 1000)[0, 0]) for _ in range(400)]
    assert len(actions) == 1
    assert len(set(noisy)) > 100
    assert np.median(noisy) == pytest.approx(actions.pop(), abs=0.15)

    dqn = Learner(configure("env=cartpole", *SHORT)).algorithm
    view = np.ones((1, 4), np.float32)
    with torch.no_grad():
        values = dqn.modules["online"](dqn.observe(view))[0]
    assert [dqn.player()(view, 0.0) for _ in range(5)] == [int(values.argmax())] * 5


class ByHand:
    """Stands for an algorithm: balances a little, and turns no pendulum."""

    def ready_to_play(self):
        pass

    def scores(self):
        return {}

    def player(self):
        return lambda view, reward: (
            int(view[-1, 2] > 0) if view.shape[1] == 4 else np.zeros(1, np.float32)
        )


@pytest.mark.parametrize("size", [2, 3])
def test_over_ranks_the_same_episodes_are_divided(configure, size):
    """Five of them, so the ranks play unequally many; each is told of all."""
    config = configure(*SHORT, "env=cartpole", "eval_episodes=5")
    alone = Evaluation(config, Ranks.single()).run(ByHand(), never)
    played = on_threads(size, lambda ranks: Evaluation(config, ranks).run(ByHand(), never))
    assert played == [alone] * size
    assert alone.mean_return == pytest.approx(sum(alone.lengths) / 5)  # a reward of 1 a step


def test_a_request_to_stop_of_one_rank_ends_it_on_all(configure):
    config = configure(*SHORT, "env=cartpole")
    found = on_threads(
        2, lambda ranks: Evaluation(config, ranks).run(ByHand(), lambda: ranks.rank == 1)
    )
    assert found == [None, None]


def test_begins_alike_every_time_and_not_as_training(configure):
    config = configure(*SHORT, "eval_episodes=3")
    evaluation = Evaluation(config, Ranks.single())
    first, second = (evaluation.run(ByHand(), never) for _ in range(2))
    assert first == second
    assert len(set(first.returns)) == 3
    assert first.lengths == (200, 200, 200)
    assert first.mean_return == pytest.approx(np.mean(first.returns))
    seeds = {evaluation._make()._seed, *(rank_seed(config.seed, rank) for rank in range(64))}
    assert len(seeds) == 65


def test_is_due_once_for_each_multiple(configure):
    evaluation = Evaluation(configure(*SHORT, "eval_every=20"), Ranks.single())
    done = []
    for step in range(0, 90, 3):  # as three ranks count
        if evaluation.is_due(step, done):
            done.append(step)
    assert done == [21, 42, 60, 81]
    off = Evaluation(configure(*SHORT, "eval_every=0"), Ranks.single())
    assert not off.is_due(1000, [])
