"""Several environments of one rank: each plays, stores and ends episodes of its own."""

from __future__ import annotations

import numpy as np
import pytest

from gear.train.loop import Learner

SHORT = ("algo.learning_starts=1000", "model.hidden=[4]")


@pytest.fixture
def learner(configure):
    made = Learner(configure("env=cartpole", "env.num_envs=3", *SHORT))
    yield made
    made.close()


def test_every_environment_has_its_own_episode(learner):
    """Numbers go over all environments, in the order in which episodes begin; none comes twice."""
    seen = {each.number: each.env.view.tobytes() for each in learner.acting.playing}
    assert list(seen) == [0, 1, 2]
    ended = []
    while len(learner.counters.returns) < 9:
        before = {each.number for each in learner.acting.playing}
        ended += learner.step()
        for each in learner.acting.playing:
            if each.number not in before:
                assert each.length == 0
                seen[each.number] = each.env.view.tobytes()
    assert list(seen) == list(range(len(seen)))
    assert len(set(seen.values())) == len(seen) == learner.counters.episodes
    assert [e.episode_return for e in ended] == [e.length for e in ended]  # 1 for each step
    assert all(e.env_steps % 3 == 0 for e in ended)


def test_episodes_are_stored_apart(learner):
    """What the buffer holds of each episode is what one environment showed, in order."""
    shown = {each.number: [each.env.obs.copy()] for each in learner.acting.playing}
    for _ in range(40):
        learner.step()
        for each in learner.acting.playing:
            shown.setdefault(each.number, []).append(each.env.obs.copy())
    stored = {}
    for episode in learner.buffer.episodes():
        rows = learner.buffer.collect(episode.ids, framework="numpy")["obs"]
        stored[rows[0].tobytes()] = rows
    running = {each.number for each in learner.acting.playing}
    assert len(shown) > 6
    for number in shown.keys() - running:
        rows = np.stack(shown[number])
        np.testing.assert_array_equal(stored[rows[0].tobytes()], rows)
    assert learner.counters.env_steps == len(learner.buffer) == 120


def test_one_network_call_acts_for_all(learner, monkeypatch):
    """Every environment gets the action that was chosen for what it shows."""
    given = []

    def act(views, step):
        given.append((views.copy(), step))
        return np.array([0, 1, 0])

    monkeypatch.setattr(learner.algorithm, "act", act)
    shown = np.stack([env.view for env in learner.envs])
    learner.step()
    ((views, step),) = given
    np.testing.assert_array_equal(views, shown)
    assert step == 0
    # CartPole's second value is the cart's speed, which the action drives to the left or right.
    assert [env.obs[1] > 0 for env in learner.envs] == [False, True, False]
