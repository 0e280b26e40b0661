"""What a run counts."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Counters:
    """Totals since the run's first step, over all its continuations and, but for `episodes` and the
    times, over all ranks."""

    env_steps: int = 0
    updates: int = 0
    episodes: int = 0  # that this rank has begun
    seconds: float = 0.0  # wall time inside `step`
    replay_seconds: float = 0.0  # of which inside calls of the replay buffer
    checkpoint_seconds: float = 0.0  # wall time for which checkpoints held up learning
    return_steps: list[int] = field(default_factory=list)  # env_steps at each episode's end
    returns: list[float] = field(default_factory=list)  # undiscounted, unclipped, one per episode
    eval_steps: list[int] = field(default_factory=list)  # `Learner.steps` at each evaluation
    eval_returns: list[float] = field(default_factory=list)  # mean return of its episodes


@dataclass(frozen=True)
class Ended:
    """An episode of some rank that has ended."""

    env_steps: int  # then
    episode_return: float
    length: int
