"""Each rank stores experience, draws from that of all, and says whose it got."""

from __future__ import annotations

import numpy as np

import gear

STEPS = 64

with gear.Group.from_env() as group:
    schema = gear.Schema([gear.Column("owner", (), "int64"), gear.Column("square", (), "int64")])
    with gear.ReplayBuffer(schema, capacity=STEPS, group=group) as buffer:
        with buffer.writer() as writer:
            mine = np.full(STEPS, group.rank, np.int64)
            writer.extend(owner=mine, square=mine**2)
            writer.end_episode(terminated=True)
        owners: set[int] = set()
        with buffer.loader(STEPS, locality="off", seed=1, framework="numpy") as loader:
            for _ in range(4):
                batch = next(loader)
                assert np.array_equal(batch["square"], batch["owner"] ** 2), batch
                owners |= set(batch["owner"].tolist())
        nodes = group.num_nodes
    of = ", ".join(map(str, sorted(owners)))
    print(f"rank {group.rank} of {group.size}, nodes: {nodes}: rows of ranks {of}", flush=True)
