"""The learner loop: act, store, learn. One loop for every algorithm and any number of ranks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

import gear
from gear.train.acting import Acting
from gear.train.algo import Offline, OffPolicy, make_algorithm
from gear.train.config import ActingAlgo, Config, Ddp, Prioritized, Puzzles
from gear.train.counters import Counters, Ended
from gear.train.ranks import Ranks
from gear.train.record import checkpoint
from gear.train.tasks.make import make_environment
from gear.train.tasks.replay import annealed_beta, make_buffer, make_loader
from gear.train.tasks.seeding import (
    later_seed,
    rank_seed,
    restore_rng,
    rng_state,
    seed_everything,
    seed_generators,
)

LEAST_PRIORITY = 1e-6  # of an error that vanished: 0 would never be drawn again


def check_finite(learned: Mapping[str, float], step: int) -> None:
    """Raises InvalidArgument unless all that was learned with up to this step are numbers."""
    for name, value in learned.items():
        if not math.isfinite(value):
            raise gear.InvalidArgument(
                f"[train] {name} is {value} at step {step:,}: learning has diverged, and the run "
                "ends; its last checkpoint is from before. Look for rewards or observations that "
                "are no numbers, or start afresh with a smaller optim.lr"
            )


class Learner:
    """A run between two steps; a Learner made from its `save` continues bit-equal.

    Every rank takes every step in its own environment, stores it in its own shard and learns from
    its own share of the batch, so all ranks are at the same place at all times: what a call of one
    does with the others, the same call of the others does with it. Ranks differ in the seeds of
    environment and exploration; networks and optimisers are bit-equal.

    With `dist.learners` the first ranks learn and the others only act: they hold the networks that
    the learners had at the last exchange, and what they draw of each batch is not learned from.

    An algorithm that does not act learns from saved data: then a step is an update.

    Attributes:
        acting: None where the algorithm does not act.
        facts: of the data that it learns from, where it does not.
        stop: number of the signal after which the ranks stop; 0: none.
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
        self.facts: object = None
        self.stop = 0
        self._weighted = config.replay if isinstance(config.replay, Prioritized) else None
        # What `config` was before it was fitted to these ranks stays in the checkpoints.
        self._config_ranks = start.config_ranks if start else self.ranks.size
        self._exchange_every = config.dist.exchange_every if isinstance(config.dist, Ddp) else 1
        size = self.ranks.size
        learners = config.dist.num_learners(size) if isinstance(config.dist, Ddp) else size
        self._learns, self._all_learn = self.ranks.rank < learners, learners == size
        state = self.ranks.together(lambda: self._make_own(start))
        group = self.ranks.group
        self.buffer: gear.ReplayBuffer = (
            self.algorithm.open(group)
            if isinstance(self.algorithm, Offline)
            else make_buffer(config, self.envs[0], group, start)
        )
        self.loader = make_loader(config, self.buffer, self.algorithm, self.ranks)
        self.algorithm.share()
        if start and state:
            self._restore(start, state)
        self.acting: Acting | None = None
        if isinstance(config.algo, ActingAlgo):
            self.acting = Acting(
                self.envs, self.buffer, self.counters, config.algo, note=note, saved=state
            )
        if state:  # last, since playing an episode again may draw from the global generators
            self._restore_rng(state)

    def _make_own(self, start: checkpoint.Checkpoint | None) -> dict[str, Any] | None:
        """What is made without the other ranks; returns the state to continue from."""
        config, ranks = self.config, self.ranks
        state = start.state(ranks.rank, ranks.size) if start else None
        seed = rank_seed(config.seed, ranks.rank)
        seed_everything(seed, config.threads, deterministic=config.deterministic)
        num_envs = config.env.num_envs if isinstance(config.algo, ActingAlgo) else 1
        if isinstance(config.data, Puzzles):
            num_envs = 0
        self.envs = [make_environment(config.env, seed) for _ in range(num_envs)]
        self.algorithm = make_algorithm(config, self.envs[0] if self.envs else None, ranks)
        if isinstance(self.algorithm, Offline):
            self.facts = self.algorithm.look()
        return state

    @property
    def steps(self) -> int:
        """What `total_steps` counts: environment steps of all ranks, or updates if none acts."""
        return self.counters.env_steps if self.acting else self.counters.updates

    def step(self, stop: int = 0) -> list[Ended]:
        """One step of every environment of every rank and the updates that are due.

        stop: number of a signal that asks this rank to stop. `self.stop` is then set, not at once
        but on all ranks after the same step.
        Returns the episodes of all ranks that ended since the news were last exchanged: every
        `dist.exchange_every` steps of a rank, and at the run's end.
        """
        began = time.perf_counter()
        c = self.counters
        for _ in range(self._act()):
            self._update()
        own_steps = c.env_steps // self.ranks.size if self.acting else c.updates
        news = self._exchange(stop) if self._exchange_is_due(own_steps) else []
        c.seconds += time.perf_counter() - began
        return news

    def save(self, run_dir: Path) -> checkpoint.Checkpoint:
        """Collective; returns where it was saved.

        Raises InvalidArgument in place of saving networks that have learned from a loss that is no
        number.
        """
        began = time.perf_counter()
        self.ranks.together(lambda: check_finite(self.algorithm.peek(), self.steps))
        self._hand_over()
        own = {
            "rng": rng_state(),
            "counters": asdict(self.counters),
            "networks": self.algorithm.digest(),
            "strategy": self.config.dist.name,
            "recorded": self.algorithm.recorded(),
            "loader": self.loader.state_dict(),
            **(self.acting.state() if self.acting else {}),
        }
        saved = checkpoint.save(
            run_dir,
            self.steps,
            config=self.config.yaml,
            shared={
                "algorithm": self.algorithm.state_dict(),
                "config_ranks": self._config_ranks,
            },
            own=own,
            buffer=self.buffer if self.acting else None,
            ranks=self.ranks,
            keep=self.config.keep_checkpoints,
        )
        self.counters.checkpoint_seconds += time.perf_counter() - began
        return saved

    def close(self) -> None:
        """Collective."""
        self.loader.close()
        self.buffer.close()
        for env in self.envs:
            env.close()

    def _update(self) -> None:
        c = self.counters
        called = time.perf_counter()
        if self._weighted:
            self.loader.beta = annealed_beta(self._weighted, self.steps)
        batch = next(self.loader)
        c.replay_seconds += time.perf_counter() - called
        c.updates += 1
        if not self._learns:
            self.algorithm.stand_by()
            return
        errors = self.algorithm.learn(batch)
        if self._weighted:
            called = time.perf_counter()
            try:
                self.buffer.update(batch.ids, errors + LEAST_PRIORITY)
            except gear.InvalidArgument:  # no priorities: say what they come from
                check_finite(self.algorithm.peek(), self.steps)
                raise
            c.replay_seconds += time.perf_counter() - called

    def _hand_over(self) -> None:
        if not self._all_learn:
            self.algorithm.hand_over()

    def _act(self) -> int:
        """Acts, if that is what the algorithm does; returns how many updates are due."""
        if self.acting and isinstance(self.algorithm, OffPolicy):
            return self.acting.step(self.algorithm, self.ranks)
        return 1

    def _exchange_is_due(self, own_steps: int) -> bool:
        if self.ranks.size == 1 or self.steps >= self.config.total_steps:
            return True
        before = own_steps - (len(self.envs) if self.acting else 1)
        return own_steps // self._exchange_every > before // self._exchange_every

    def _exchange(self, stop: int) -> list[Ended]:
        """Tells all ranks which episodes have ended here and whether to stop."""
        mine = self.acting.ended if self.acting else []
        news: list[Any] = self.ranks.exchange([stop, [astuple(ended) for ended in mine]])
        mine.clear()
        self.stop = max(asked for asked, _ in news)
        ended = sorted((Ended(*e) for _, each in news for e in each), key=lambda e: e.env_steps)
        self.counters.return_steps += [e.env_steps for e in ended]
        self.counters.returns += [e.episode_return for e in ended]
        self._hand_over()
        return ended

    def _restore(self, start: checkpoint.Checkpoint, state: dict[str, Any]) -> None:
        self.counters = Counters(**state["counters"])
        self.ranks.together(lambda: self._restore_networks(start, state))
        if "recorded" in state:
            self.algorithm.restore_recorded(state["recorded"])
        self.loader.load_state_dict(state["loader"])

    def _restore_rng(self, state: dict[str, Any]) -> None:
        if "rng" in state:
            restore_rng(state["rng"])
        else:  # this rank is new
            seed_generators(later_seed(rank_seed(self.config.seed, self.ranks.rank), self.steps))

    def _restore_networks(self, start: checkpoint.Checkpoint, state: dict[str, Any]) -> None:
        """The networks are saved once: what this rank had then must be what it gets here. Another
        strategy keeps them in another form, which cannot be compared."""
        self.algorithm.load_state_dict(state["algorithm"])
        same_form = state.get("strategy", self.config.dist.name) == self.config.dist.name
        if same_form and self.algorithm.digest() != state["networks"]:
            raise gear.CorruptData(
                f"[train] {start.path} holds other networks than rank {self.ranks.rank} had when "
                "it was saved: the ranks had diverged, or files of several saves are mixed; "
                "continue from an older checkpoint"
            )
