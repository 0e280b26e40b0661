"""The run's replay buffer and loader, from the groups `replay` and `algo`."""

from __future__ import annotations

import os
from typing import Any

import gear
from gear.train.algo import Algorithm
from gear.train.checkpoint import Checkpoint
from gear.train.config import Config, Ddp, Prioritized
from gear.train.envs import Environment
from gear.train.ranks import Ranks


def make_buffer(
    config: Config, env: Environment, group: gear.Group, start: Checkpoint | None
) -> gear.ReplayBuffer:
    """Columns: obs as observed, action, reward float32, terminated bool (never a truncation).

    Collective. start: takes what was saved there.
    """
    tier = config.replay.tier
    # A group makes its names up.
    name = f"gear-train-{os.getpid()}" if tier == "shared" and group.size == 1 else None
    if start:
        return start.buffer(tier, name, group)
    action = ((), "int64") if env.num_actions else ((env.action_dim,), "float32")
    columns = [
        gear.Column("obs", env.obs_shape, env.obs_dtype),
        gear.Column("action", *action),
        gear.Column("reward", (), "float32"),
        gear.Column("terminated", (), "bool"),
    ]
    return gear.ReplayBuffer(
        gear.Schema(columns),
        config.replay.capacity,
        tier=tier,
        name=name,
        page_steps=config.replay.page_steps,
        group=group,
    )


def make_loader(
    config: Config, buffer: gear.ReplayBuffer, algorithm: Algorithm, ranks: Ranks
) -> gear.Loader:
    """Batches of what the algorithm asks for."""
    sampler: gear.Uniform | gear.Weighted = gear.Uniform()
    if isinstance(config.replay, Prioritized):
        sampler = gear.Weighted(alpha=config.replay.alpha, beta=config.replay.beta)
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
