"""The loop of docs/environments.md stores what single environments do, step by step: no more."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from docs.documents import blocks
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

import gear

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]
NUM_ENVS, CALLS, SEED = 3, 60, 5


class Counted(gymnasium.Env):
    """What it shows says where it is: (itself, episode, step). Episodes of 1, 2, ... 5 steps, of
    which every second is cut off; a reward is the number of the step in all episodes."""

    observation_space = gymnasium.spaces.Box(-1, 1000, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, name: int) -> None:
        self.name, self.episode, self.step_, self.steps = name, -1, 0, 0

    def _obs(self) -> NDArray[np.float32]:
        return np.array([self.name, self.episode, self.step_], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.episode, self.step_ = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.step_, self.steps = self.step_ + 1, self.steps + 1
        ends = self.step_ > (self.name + self.episode) % 5
        cut = self.episode % 2 == 1
        return self._obs(), float(self.steps), ends and not cut, ends and cut, {}


def cartpole(_: int) -> gymnasium.Env:
    return gymnasium.make("CartPole-v1", max_episode_steps=15)


MADE = {"counted": Counted, "cartpole": cartpole}


def act(obs: NDArray[Any]) -> NDArray[Any]:
    """One observation's action does not depend on the others'."""
    return (np.abs(np.asarray(obs) * 1000).sum(-1) % 7 < 3).astype(np.int64)


@dataclass
class Step:
    obs: NDArray[Any]
    action: int
    reward: float
    terminated: bool
    last: bool  # of its episode
    next_obs: NDArray[Any]


def reference(env: gymnasium.Env, seed: int, mode: AutoresetMode) -> list[Step]:
    """What happens in `CALLS` calls, by one environment that is reset by hand: in the mode
    NEXT_STEP a reset takes a call, too."""
    found: list[Step] = []
    obs, _ = env.reset(seed=seed)
    calls = 0
    while calls < CALLS:
        action = int(act(obs))
        new, reward, terminated, truncated, _ = env.step(action)
        last = terminated or truncated
        found.append(Step(obs, action, float(reward), terminated, last, new))
        obs, calls = new, calls + 1
        if last:
            obs, _ = env.reset()
            calls += mode == AutoresetMode.NEXT_STEP
    if calls > CALLS:  # the row that closes the last episode would be the next: it counts as open
        found[-1].terminated = found[-1].last = False
    return found


@pytest.fixture
def documented() -> Callable[..., None]:
    """`store_steps` of the document."""
    names: dict[str, Any] = {}
    exec(blocks("python", "vector")[0].code, names)
    loop: Callable[..., None] = names["store_steps"]
    return loop


def obvious(envs: Any, writers: Any, act: Any, num_calls: int, seed: int) -> None:
    """What one writes without having read the document."""
    obs, _ = envs.reset(seed=seed)
    for _ in range(num_calls):
        action = act(obs)
        new, reward, terminated, truncated, _ = envs.step(action)
        for i, writer in enumerate(writers):
            writer.append(obs=obs[i], action=int(action[i]), reward=float(reward[i]))
            if terminated[i] or truncated[i]:
                writer.end_episode(terminated=bool(terminated[i]), final={"obs": new[i]})
        obs = new


def stored(
    loop: Callable[..., None], kind: str, mode: AutoresetMode, *, together: bool = False
) -> list[list[Step]]:
    """What `loop` stored: by environment, in a buffer each; or together, by episode."""
    make = MADE[kind]
    envs = SyncVectorEnv([partial(make, name) for name in range(NUM_ENVS)], autoreset_mode=mode)
    obs = gear.Column("obs", envs.single_observation_space.shape)
    schema = gear.Schema([obs, gear.Column("action", (), "int64"), gear.Column("reward")])
    outputs = {
        "obs": gear.Step(),
        "action": gear.Step(),
        "reward": gear.Step(),
        "terminated": gear.Terminated(),
        "last": gear.IsLast(),
        "next_obs": gear.Step(1, "obs"),
    }
    with ExitStack() as stack:
        stack.callback(envs.close)
        count = 1 if together else NUM_ENVS
        buffers = [stack.enter_context(gear.ReplayBuffer(schema, 1000)) for _ in range(count)]
        if together:
            loop(envs, stack.enter_context(buffers[0].writer(envs)), act, CALLS, seed=SEED)
        else:
            loop(envs, [stack.enter_context(b.writer()) for b in buffers], act, CALLS, seed=SEED)
        found: list[list[Step]] = []
        for buffer in buffers:
            parts = [episode.ids for episode in buffer.episodes()]
            for ids in parts if together else [np.concatenate(parts)]:
                batch = buffer.collect(np.asarray(ids), outputs, framework="numpy")
                rows = [np.asarray(batch[key]) for key in outputs]
                found.append([Step(*values) for values in zip(*rows, strict=True)])
    return found


def episodes(steps: list[Step]) -> list[list[Step]]:
    found: list[list[Step]] = [[]]
    for step in steps:
        found[-1].append(step)
        if step.last:
            found.append([])
    return [episode for episode in found if episode]


def same(found: list[Step], expected: list[Step]) -> bool:
    """To the bit; what follows the last step of all is not stored where its episode is open."""
    if len(found) != len(expected):
        return False
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        alike = np.array_equal(one.obs, other.obs) and (one.action, one.reward) == (
            other.action,
            np.float32(other.reward),
        )
        ends = (bool(one.terminated), bool(one.last)) == (other.terminated, other.last)
        is_open = index == len(expected) - 1 and not other.last
        follows = is_open or np.array_equal(one.next_obs, other.next_obs)
        if not (alike and ends and follows):
            return False
    return True


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("mode", MODES)
def test_the_loop_stores_the_steps_that_happened(
    kind: str, mode: AutoresetMode, documented: Callable[..., None]
) -> None:
    left = stored(documented, kind, mode, together=True)
    for name in range(NUM_ENVS):
        env = MADE[kind](name)
        expected = episodes(reference(env, SEED + name, mode))
        env.close()
        assert len(expected) > 3
        for episode in expected:
            (place,) = [i for i, one in enumerate(left) if same(one, episode)]
            del left[place]
    assert not left


@pytest.mark.parametrize("mode", MODES)
def test_the_obvious_loop_does_not(mode: AutoresetMode) -> None:
    """It stores resets as steps, or takes the next episode's first observation for the last."""
    for name, found in enumerate(stored(obvious, "counted", mode)):
        expected = reference(Counted(name), SEED + name, mode)
        assert not same(found, expected)
        assert len(found) == CALLS
        assert (len(expected) < CALLS) == (mode == AutoresetMode.NEXT_STEP)


def test_the_documents_example_runs_as_it_is() -> None:
    names: dict[str, Any] = {}
    for block in blocks("python", "vector"):
        exec(block.code, names)
    buffer = names["buffer"]
    states = {episode.state for episode in buffer.episodes()}
    assert {"terminated", "open"} <= states
    names["writer"].close()
    names["envs"].close()
    buffer.close()
