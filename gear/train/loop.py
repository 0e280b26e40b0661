"""The learner loop: act, store, learn. One loop for every algorithm."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig

from gear.train import checkpoint
from gear.train.algo import make_algorithm
from gear.train.envs import Environment
from gear.train.replay import annealed_beta, make_buffer, make_loader
from gear.train.seeding import restore_rng, rng_state, seed_everything


@dataclass
class Counters:
    """Totals since the run's first step, over all its continuations."""

    env_steps: int = 0
    updates: int = 0
    episode: int = 0  # number of the running episode
    seconds: float = 0.0  # wall time inside `step`
    replay_seconds: float = 0.0  # of which inside calls of the replay buffer
    return_steps: list[int] = field(default_factory=list)  # env_steps at each episode's end
    returns: list[float] = field(default_factory=list)  # undiscounted, unclipped, one per episode


class Learner:
    """A run between two environment steps; a Learner made from its `save` continues bit-equal.

    The simulator's state is not saved. An episode's reset is seeded by its number and the actions
    taken so far are kept: a continued run plays them again. A simulator that then shows another
    observation is not deterministic; the run says so through `note` and starts the next episode.
    """

    def __init__(
        self,
        cfg: DictConfig,
        *,
        start: checkpoint.Checkpoint | None = None,
        note: Callable[[str], None] = print,
    ) -> None:
        self.cfg = cfg
        self.counters = Counters()
        self.episode_return = 0.0
        seed_everything(cfg.seed, cfg.threads)
        self.env = Environment(cfg.env, cfg.seed)
        self.algorithm = make_algorithm(cfg, self.env)
        self.buffer = start.buffer() if start else make_buffer(cfg, self.env)
        self.loader = make_loader(cfg, self.buffer, self.algorithm)
        self._weighted = cfg.replay.sampler == "weighted"
        self._actions: list[NDArray[Any] | int] = []
        if start:
            self._restore(start.state(), note)
        else:
            self.writer = self.buffer.writer()
            self.env.reset(0)

    def step(self) -> int:
        """One environment step and the updates that are due.

        Returns the length of the episode that it ended, else 0.
        """
        began = time.perf_counter()
        c, algo = self.counters, self.cfg.algo
        obs = self.env.obs
        action = self.algorithm.act(self.env.view, c.env_steps)
        reward, terminated, truncated = self.env.step(action)
        self._actions.append(action)
        self.episode_return += reward
        c.env_steps += 1

        stored = time.perf_counter()
        self.writer.append(
            obs=obs,
            action=action,
            reward=self.env.learning_reward(reward),
            terminated=terminated,
        )
        if terminated or truncated:
            self.writer.end_episode(terminated=terminated, final={"obs": self.env.obs})
        c.replay_seconds += time.perf_counter() - stored

        length = len(self._actions)
        if terminated or truncated:
            c.return_steps.append(c.env_steps)
            c.returns.append(self.episode_return)
            self._next_episode()
        if c.env_steps >= algo.learning_starts and c.env_steps % algo.train_every == 0:
            for _ in range(algo.updates):
                self._update()
        c.seconds += time.perf_counter() - began
        return length if terminated or truncated else 0

    def save(self, run_dir: Path) -> checkpoint.Checkpoint:
        state = {
            "rng": rng_state(),
            "counters": asdict(self.counters),
            "algorithm": self.algorithm.state_dict(),
            "loader": self.loader.state_dict(),
            "episode": {
                "uid": self.writer.episode,
                "actions": np.array(self._actions),
                "view": self.env.view,
                "return": self.episode_return,
            },
        }
        return checkpoint.save(
            run_dir,
            self.counters.env_steps,
            config=self.cfg,
            state=state,
            buffer=self.buffer,
            keep=self.cfg.keep_checkpoints,
        )

    def close(self) -> None:
        self.loader.close()
        self.buffer.close()
        self.env.close()

    def _update(self) -> None:
        c = self.counters
        called = time.perf_counter()
        if self._weighted:
            self.loader.beta = annealed_beta(self.cfg, c.env_steps)
        batch = next(self.loader)
        c.replay_seconds += time.perf_counter() - called
        errors = self.algorithm.learn(batch)
        if self._weighted:
            called = time.perf_counter()
            self.buffer.update(batch.ids, errors)
            c.replay_seconds += time.perf_counter() - called
        c.updates += 1

    def _next_episode(self) -> None:
        self.counters.episode += 1
        self.episode_return = 0.0
        self._actions = []
        self.env.reset(self.counters.episode)

    def _restore(self, state: dict[str, Any], note: Callable[[str], None]) -> None:
        self.counters = Counters(**state["counters"])
        self.algorithm.load_state_dict(state["algorithm"])
        self.loader.load_state_dict(state["loader"])
        episode = state["episode"]
        self.writer = self.buffer.writer(episode=episode["uid"])
        self.episode_return = episode["return"]
        self._actions = list(episode["actions"])
        self.env.replay(self.counters.episode, episode["actions"])
        if not np.array_equal(self.env.view, episode["view"], equal_nan=True):
            note(
                f"warning: {self.cfg.env.id} did not reproduce episode {self.counters.episode} "
                "from its seed and actions: starting the next one. "
                "This run will differ from an uninterrupted one."
            )
            self.writer.end_episode(final={"obs": episode["view"][-1]})
            self._next_episode()
        # Last, since replaying an episode may draw from the global generators.
        restore_rng(state["rng"])
