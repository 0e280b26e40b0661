"""Ranks of mpi4py exchange experience, by messages of MPI, as if each were on a node of its own."""

from __future__ import annotations

import os

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
os.environ["GEAR_NODE"] = f"rank {world.rank}"

import gear  # noqa: E402
from gear.cli.probe import mpi_library  # noqa: E402

STEPS = 64
assert world.size >= 2, "start it with two ranks or more: mpirun -n 2 python check_mpi4py.py"
schema = gear.Schema([gear.Column("owner", (), "int64"), gear.Column("square", (), "int64")])
group = gear.Group.from_mpi(world, timeout_s=60, transport="mpi")
with gear.ReplayBuffer(schema, capacity=STEPS, group=group) as buffer:
    with buffer.writer() as writer:
        mine = np.full(STEPS, world.rank + 1, np.int64)
        writer.extend(owner=mine, square=mine**2)
        writer.end_episode(terminated=True)
    owners: set[int] = set()
    with buffer.loader(STEPS, locality="off", seed=1, framework="numpy") as loader:
        for _ in range(4):
            batch = next(loader)
            assert np.array_equal(batch["square"], batch["owner"] ** 2)
            owners |= set(batch["owner"].tolist())
        stats = loader.stats()
    transport = group.transport_name
assert owners == set(range(1, world.size + 1)), owners
assert stats["remote_bytes"] > 0, stats
if world.rank == 0:
    library = mpi_library(MPI.Get_library_version())
    print(f"{library}, transport {transport}: {world.size} ranks exchanged experience")
