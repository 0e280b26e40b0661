"""Regression on batches of a buffer: the course of the loss must not depend on the number of ranks.

The data set is cut into as many shards as there are ranks; the global batches are the same, so the
gradients are, but for the order in which they are summed.
"""

from __future__ import annotations

import numpy as np

import gear
from distributed.participant import Participant

GLOBAL_BATCH, STEPS = 64, 90
NUM_EPISODES, EPISODE_STEPS = 48, 12
SCHEMA = gear.Schema([gear.Column("x", (6,), "float32"), gear.Column("y", (), "float32")])
SAMPLERS: dict[str, gear.Sampler] = {
    "weighted": gear.Weighted(alpha=0.8, beta=0.6),
    "shuffled": gear.Sequential(drop_last=True),
}


def episode(number: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([number, 77])
    x = rng.normal(size=(EPISODE_STEPS, 6)).astype(np.float32)
    y = np.sin(x[:, 0] * 2) + x[:, 1] * x[:, 2] + 0.1 * rng.normal(size=EPISODE_STEPS)
    priority = rng.uniform(0.1, 4, EPISODE_STEPS).astype(np.float32)
    return {"x": x, "y": y.astype(np.float32), "priority": priority}


def play_toy(me: Participant) -> None:
    """Records the loss over the global batch, by step."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{me.shared_folder('rendezvous')}",
        rank=me.rank,
        world_size=me.size,
    )
    mine = np.array_split(np.arange(NUM_EPISODES), me.size)[me.rank]
    with me.buffer(
        SCHEMA, NUM_EPISODES * EPISODE_STEPS, page_steps=4, several_nodes=True
    ) as buffer:
        for number in mine.tolist():
            with buffer.writer() as writer:
                writer.extend(**episode(number))
        for name, sampler in SAMPLERS.items():
            for locality in ("first", "off"):
                losses = train(me, buffer, sampler, locality)
                me.record(f"{name}/{locality}", losses)
    dist.destroy_process_group()


def train(
    me: Participant, buffer: gear.ReplayBuffer, sampler: gear.Sampler, locality: str
) -> list[float]:
    import torch
    import torch.distributed as dist

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    losses: list[float] = []
    with buffer.loader(
        GLOBAL_BATCH // me.size,
        sampler=sampler,
        locality=locality,
        seed=13,
        framework="torch",
    ) as loader:
        while len(losses) < STEPS:
            for batch in loader:
                error = model(batch["x"])[:, 0] - batch["y"]
                loss = (batch.weights * error**2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                mean = loss.detach().double()
                dist.all_reduce(mean)
                losses.append(float(mean) / me.size)
                if len(losses) == STEPS:
                    break
    return losses
