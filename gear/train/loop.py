"""The learner loop: act, store, learn. One loop for every algorithm and any number of ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gear
from gear.train import checkpoint
from gear.train.algo import make_algorithm
from gear.train.config import Config, Ddp, Prioritized
from gear.train.envs import Environment
from gear.train.ranks import Ranks
from gear.train.replay import annealed_beta, make_buffer, make_loader
from gear.train.seeding import rank_seed, restore_rng, rng_state, seed_everything


@dataclass
class Counters:
    """Totals since the run's first step, over all its continuations and, but for `episode` and the
    times, over all ranks."""

    env_steps: int = 0
    updates: int = 0
    episode: int = 0  # number of this rank's running episode
    seconds: float = 0.0  # wall time inside `step`
    replay_seconds: float = 0.0  # of which inside calls of the replay buffer
    return_steps: list[int] = field(default_factory=list)  # env_steps at each episode's end
    returns: list[float] = field(default_factory=list)  # undiscounted, unclipped, one per episode


@dataclass(frozen=True)
class Ended:
    """An episode of some rank that has ended."""

    env_steps: int  # then
    episode_return: float
    length: int


class Learner:
    """A run between two environment steps; a Learner made from its `save` continues bit-equal.

    Every rank takes every step in its own environment, stores it in its own shard and learns from
    its own share of the batch, so all ranks are at the same place at all times: what a call of one
    does with the others, the same call of the others does with it. Ranks differ in the seeds of
    environment and exploration; networks and optimisers are bit-equal.

    The simulator's state is not saved. An episode's reset is seeded by its number and the actions
    taken so far are kept: a continued run plays them again. A simulator that then shows another
    observation is not deterministic; the run says so through `note` and starts the next episode.
    """

    def __init__(
        self,
        config: Config,
        *,
        start: checkpoint.Checkpoint | None = None,
        note: Callable[[str], None] = print,
        ranks: Ranks | None = None,
    ) -> None:
        self.config = config
        self.ranks = ranks or Ranks.single(config.device)
        self.counters = Counters()
        self.episode_return = 0.0
        self.stop = 0
        self._ended: list[Ended] = []
        self._actions: list[NDArray[Any] | int] = []
        self._weighted = config.replay if isinstance(config.replay, Prioritized) else None
        self._exchange_every = config.dist.exchange_every if isinstance(config.dist, Ddp) else 1
        state = self.ranks.together(lambda: self._make_own(start))
        self.buffer = make_buffer(config, self.env, self.ranks.group, start)
        self.loader = make_loader(config, self.buffer, self.algorithm, self.ranks)
        if start and state:
            self._restore(start, state, note)
        else:
            self.algorithm.share()
            self.writer = self.buffer.writer()
            self.env.reset(0)

    def _make_own(self, start: checkpoint.Checkpoint | None) -> dict[str, Any] | None:
        """What is made without the other ranks; returns the state to continue from."""
        config, ranks = self.config, self.ranks
        state = start.state(ranks.rank, ranks.size) if start else None
        seed = rank_seed(config.seed, ranks.rank)
        seed_everything(seed, config.threads, deterministic=config.deterministic)
        self.env = Environment(config.env, seed)
        self.algorithm = make_algorithm(config, self.env, ranks)
        return state

    def step(self, stop: int = 0) -> list[Ended]:
        """One environment step of every rank and the updates that are due.

        stop: number of a signal that asks this rank to stop. `self.stop` is then set, not at once
        but on all ranks after the same step.
        Returns the episodes of all ranks that ended since the news were last exchanged: every
        `dist.exchange_every` steps of a rank, and at the run's end.
        """
        began = time.perf_counter()
        c, algo = self.counters, self.config.algo
        obs = self.env.obs
        action = self.algorithm.act(self.env.view, c.env_steps)
        self.ranks.check()  # acting waits for a GPU, in vain if a peer has ended
        reward, terminated, truncated = self.env.step(action)
        self._actions.append(action)
        self.episode_return += reward
        c.env_steps += self.ranks.size

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

        if terminated or truncated:
            self._ended.append(Ended(c.env_steps, self.episode_return, len(self._actions)))
            self._next_episode()
        own_steps = c.env_steps // self.ranks.size
        if c.env_steps >= algo.learning_starts and own_steps % algo.train_every == 0:
            for _ in range(algo.updates):
                self._update()
        news = self._exchange(stop) if self._exchange_is_due(own_steps) else []
        c.seconds += time.perf_counter() - began
        return news

    def save(self, run_dir: Path) -> checkpoint.Checkpoint:
        """Collective; returns where it was saved."""
        own = {
            "rng": rng_state(),
            "counters": asdict(self.counters),
            "ended": [asdict(ended) for ended in self._ended],
            "networks": self.algorithm.digest(),
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
            config=self.config.yaml,
            shared={"algorithm": self.algorithm.state_dict()},
            own=own,
            buffer=self.buffer,
            ranks=self.ranks,
            keep=self.config.keep_checkpoints,
        )

    def close(self) -> None:
        """Collective."""
        self.loader.close()
        self.buffer.close()
        self.env.close()

    def _update(self) -> None:
        c = self.counters
        called = time.perf_counter()
        if self._weighted:
            self.loader.beta = annealed_beta(self._weighted, c.env_steps)
        batch = next(self.loader)
        c.replay_seconds += time.perf_counter() - called
        errors = self.algorithm.learn(batch)
        if self._weighted:
            called = time.perf_counter()
            self.buffer.update(batch.ids, errors)
            c.replay_seconds += time.perf_counter() - called
        c.updates += 1

    def _exchange_is_due(self, own_steps: int) -> bool:
        if self.ranks.size == 1 or self.counters.env_steps >= self.config.total_steps:
            return True
        return own_steps % self._exchange_every == 0

    def _exchange(self, stop: int) -> list[Ended]:
        """Tells all ranks which episodes have ended here and whether to stop."""
        news: list[Any] = self.ranks.exchange([stop, [astuple(ended) for ended in self._ended]])
        self._ended = []
        self.stop = max(asked for asked, _ in news)
        ended = sorted((Ended(*e) for _, each in news for e in each), key=lambda e: e.env_steps)
        self.counters.return_steps += [e.env_steps for e in ended]
        self.counters.returns += [e.episode_return for e in ended]
        return ended

    def _next_episode(self) -> None:
        self.counters.episode += 1
        self.episode_return = 0.0
        self._actions = []
        self.env.reset(self.counters.episode)

    def _restore(
        self, start: checkpoint.Checkpoint, state: dict[str, Any], note: Callable[[str], None]
    ) -> None:
        self.counters = Counters(**state["counters"])
        self.ranks.together(lambda: self._restore_networks(start, state))
        self.loader.load_state_dict(state["loader"])
        self._ended = [Ended(**ended) for ended in state.get("ended", [])]
        episode = state["episode"]
        self.writer = self.buffer.writer(episode=episode["uid"])
        self.episode_return = episode["return"]
        self._actions = list(episode["actions"])
        self.env.replay(self.counters.episode, episode["actions"])
        if not np.array_equal(self.env.view, episode["view"], equal_nan=True):
            note(
                f"warning: {self.config.env.id} did not reproduce episode {self.counters.episode} "
                "from its seed and actions: starting the next one. "
                "This run will differ from an uninterrupted one."
            )
            if self.writer.episode is not None:  # it has a step
                self.writer.end_episode(final={"obs": episode["view"][-1]})
            self._next_episode()
        # Last, since replaying an episode may draw from the global generators.
        restore_rng(state["rng"])

    def _restore_networks(self, start: checkpoint.Checkpoint, state: dict[str, Any]) -> None:
        """The networks are saved once: what this rank had then must be what it gets here."""
        self.algorithm.load_state_dict(state["algorithm"])
        if self.algorithm.digest() != state["networks"]:
            raise gear.CorruptData(
                f"[train] {start.path} holds other networks than rank {self.ranks.rank} had when "
                "it was saved: the ranks had diverged, or files of several saves are mixed; "
                "continue from an older checkpoint"
            )
