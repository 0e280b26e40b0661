"""The run's replay buffer and loader, from the groups `replay` and `algo`."""

from __future__ import annotations

from typing import Any

import gear
from gear.train.algo import Algorithm, Offline
from gear.train.config import Config, Ddp, Imitating, Prioritized
from gear.train.ranks import Ranks
from gear.train.record.checkpoint import Checkpoint
from gear.train.tasks.environment import Environment


def schema_of(env: Environment) -> gear.Schema:
    """The environment's columns."""
    return gear.Schema(env.columns)


def make_buffer(
    config: Config, env: Environment, group: gear.Group, start: Checkpoint | None
) -> gear.ReplayBuffer:
    """Of `schema_of(env)`. Collective. start: takes what was saved there."""
    tier = config.replay.tier
    if start:
        return start.buffer(tier, group)
    return gear.ReplayBuffer(
        schema_of(env),
        config.replay.capacity,
        tier=tier,
        page_steps=config.replay.page_steps,
        group=group,
    )


def make_loader(
    config: Config, buffer: gear.ReplayBuffer, algorithm: Algorithm, ranks: Ranks
) -> gear.Loader:
    """Batches of what the algorithm asks for."""
    unit = algorithm.unit if isinstance(algorithm, Offline) else "step"
    sampler: gear.Uniform | gear.Weighted = gear.Uniform(unit=unit)
    if isinstance(config.replay, Prioritized):
        sampler = gear.Weighted(config.replay.alpha, config.replay.beta, unit=unit)
    shared: dict[str, Any] = {}
    if isinstance(config.dist, Ddp) and ranks.size > 1:
        by_nccl = ranks.moves_by_nccl(config.dist.transport)
        shared = {"locality": config.dist.locality, "nccl": by_nccl}
    return buffer.loader(
        config.algo.batch_size,
        sampler=sampler,
        outputs=algorithm.outputs,
        device=ranks.device,
        framework="torch",
        packed=isinstance(config.algo, Imitating) and config.algo.packed,
        prefetch=config.replay.prefetch,
        seed=config.seed,
        **shared,
    )


def annealed_beta(replay: Prioritized, step: int) -> float:
    """beta rises linearly from its start to 1 over beta_steps (arXiv:1511.05952, section 3.4).

    Not over total_steps: a run that is continued for longer equals one that was as long from the
    start.
    """
    return replay.beta + (1.0 - replay.beta) * min(1.0, step / replay.beta_steps)
