"""n-step transitions from windows equal a slow walk along the episode."""

from __future__ import annotations

import numpy as np
import pytest

import gear
from gear.train.tasks.nstep import outputs, powers_of, read, transitions

GAMMA = 0.9


def make_episodes(rng, lengths, shape):
    """(obs [T + 1, *shape], action [T], reward [T], terminated) per episode, obs all different."""
    episodes = []
    for number, length in enumerate(lengths):
        obs = rng.normal(size=(length + 1, *shape)).astype(np.float32)
        obs.flat[0] = number
        reward = rng.normal(size=length).astype(np.float32)
        episodes.append((obs, np.arange(length) + 1000 * number, reward, number % 2 == 0))
    return episodes


def store(episodes, shape):
    schema = gear.Schema(
        [
            gear.Column("obs", shape),
            gear.Column("action", (), "int64"),
            gear.Column("reward"),
            gear.Column("terminated", (), "bool"),
        ]
    )
    buffer = gear.ReplayBuffer(schema, 4096, page_steps=4)
    writer = buffer.writer()
    for obs, action, reward, terminated in episodes:
        for t in range(len(reward)):
            writer.append(
                obs=obs[t],
                action=action[t],
                reward=reward[t],
                terminated=terminated and t == len(reward) - 1,
            )
        writer.end_episode(terminated=terminated, final={"obs": obs[-1]})
    return buffer


def state(obs, t, stack):
    rows = [obs[k] if k >= 0 else np.zeros_like(obs[0]) for k in range(t + 1 - stack, t + 1)]
    return np.stack(rows)


def slow_target(episode, t, n, stack):
    """(state, return, discount, bootstrap state) by one step after another."""
    obs, _, reward, terminated = episode
    total, discount, k = 0.0, 1.0, t
    while k < len(reward) and k < t + n:
        total += discount * float(reward[k])
        discount *= GAMMA
        k += 1
    if terminated and k == len(reward):
        discount = 0.0
    return state(obs, t, stack), total, discount, state(obs, k, stack)


@pytest.mark.parametrize("shape", [(3,), (4, 5)])
@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_equals_slow_reference(n, stack, shape):
    rng = np.random.default_rng(n * 10 + stack)
    episodes = make_episodes(rng, [1, 2, 3, 5, 9, 16, 17, 40], shape)
    loader = store(episodes, shape).loader(256, outputs=outputs(n, stack), framework="torch")
    seen = set()
    for _ in range(4):
        result = transitions(read(next(loader)), powers=powers_of(GAMMA, n), stack=stack)
        for row, action in enumerate(result.action.tolist()):
            number, t = divmod(action, 1000)
            seen.add(action)
            now, total, discount, later = slow_target(episodes[number], t, n, stack)
            where = f"episode {number}, step {t}"
            np.testing.assert_array_equal(result.obs[row].numpy(), now, where)
            np.testing.assert_allclose(result.returns[row].item(), total, 1e-5, 1e-6, err_msg=where)
            np.testing.assert_allclose(result.discount[row].item(), discount, 1e-6, err_msg=where)
            np.testing.assert_array_equal(result.next_obs[row].numpy(), later, where)
    assert len(seen) == sum(len(reward) for _, _, reward, _ in episodes)


def test_open_episode_offers_only_whole_transitions():
    rng = np.random.default_rng(0)
    obs, action, reward, _ = make_episodes(rng, [10], (3,))[0]
    buffer = store([], (3,))
    writer = buffer.writer()
    for t in range(10):
        writer.append(obs=obs[t], action=action[t], reward=reward[t], terminated=False)
    batch = next(buffer.loader(256, outputs=outputs(3, 1), framework="torch"))
    assert batch["action"].max() == 6  # step 7 lacks the observation of step 10
    assert (batch.lengths["reward"] == 3).all()
