"""How fast one rank gets rows of another, by a loader."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

import gear

MOST_ROWS = 65_536  # of a batch
FILLED_AT_A_TIME = 4096


@dataclass(frozen=True)
class Work:
    """What is measured: random rows of a pool, a batch of them at a time, for so long at least."""

    pool_bytes: int = 256 << 20
    batch_bytes: int = 4 << 20
    seconds: float = 1.0


def rows_per_s(group: gear.Group, tier: str, row_bytes: int, work: Work) -> float:
    """Rows a second that rank 0 of two receives out of the shard of rank 1, which holds them all.

    Rank 1 draws as large a batch for itself meanwhile. Of several measurements, each twice as long
    as the one before, the first counts that takes the work's seconds. Collective; on rank 1: 0.
    """
    rows = max(1, work.pool_bytes // row_bytes)
    batch_size = max(1, min(MOST_ROWS, work.batch_bytes // row_bytes, rows))
    schema = gear.Schema([gear.Column("row", (row_bytes,), "uint8")])
    with gear.ReplayBuffer(schema, max(rows, 1024), tier=tier, group=group) as buffer:
        if group.rank == 1:
            _fill(buffer, rows, row_bytes)
        group.barrier()
        with buffer.loader(batch_size, framework="numpy") as loader:
            for batches in (2**n for n in range(1, 40)):
                before = _bytes_of_others(loader)
                began = time.perf_counter()
                for _ in range(batches):
                    next(loader)
                took = time.perf_counter() - began
                if group.exchange(took)[0] >= work.seconds:
                    break
            received = _bytes_of_others(loader) - before
            group.barrier()
    return received / row_bytes / took


def pack_below(group: gear.Group) -> int:
    """Runs shorter than so many bytes are packed by their owners. Collective."""
    schema = gear.Schema([gear.Column("row")])
    with (
        gear.ReplayBuffer(schema, 1024, tier="host", group=group) as buffer,
        buffer.loader(1, framework="numpy") as loader,
    ):
        return loader.stats()["pack_below"]


def _fill(buffer: gear.ReplayBuffer, rows: int, row_bytes: int) -> None:
    with buffer.writer() as writer:
        for begin in range(0, rows, FILLED_AT_A_TIME):
            numbers = np.arange(begin, min(rows, begin + FILLED_AT_A_TIME)).astype(np.uint8)
            writer.extend(row=np.repeat(numbers[:, None], row_bytes, axis=1))
            writer.end_episode(terminated=True)


def _bytes_of_others(loader: gear.Loader) -> int:
    stats = loader.stats()
    return stats["bytes"] - stats["local_bytes"]
