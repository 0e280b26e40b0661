"""Batches of a group whose transports are emulated, and what went by them; also as a program."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import gear
import gear.emu as emu
from gear.emu.replay.rounds import Batch, Moved, rounds

STEPS, ROW_BYTES = 256, 64  # of every rank; of a row, which nothing fills up
SCHEMA = gear.Schema([gear.Column("row", (ROW_BYTES,), "uint8")])


@dataclass
class Drawn:
    """What a rank, or several, got and gave in some batches.

    Attributes:
        batches: how many.
        near, far: items of other ranks of its node, and of other nodes.
        near_pairs, far_pairs: ranks of which there were any, batch by batch.
        tallies: by call of a transport: calls, messages, bytes, and seconds that curves say.
        ids: of the items, batch by batch.
    """

    batches: int = 0
    near: int = 0
    far: int = 0
    near_pairs: int = 0
    far_pairs: int = 0
    tallies: dict[str, list[float]] = field(default_factory=dict)
    ids: list[list[int]] = field(default_factory=list)

    @property
    def moved(self) -> Moved:
        return Moved(self.near, self.far, self.near_pairs, self.far_pairs)

    def add(self, other: Drawn) -> None:
        """Of another rank, in the same batches."""
        self.batches = other.batches
        for name in ("near", "far", "near_pairs", "far_pairs"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for call, told in other.tallies.items():
            before = self.tallies.get(call, [0.0] * len(told))
            self.tallies[call] = [one + more for one, more in zip(before, told, strict=True)]


def draw(group: gear.Group, batch: Batch, batches: int, seed: int) -> Drawn:
    """What one rank gets and gives; collective. Its transports are emulated, and hold nothing."""
    return draw_by(group, batch, batches, seed, emu.emulate(group))


def draw_by(group: gear.Group, batch: Batch, batches: int, seed: int, traffic: Any = None) -> Drawn:
    """The same of a group whose transports count in `traffic`; None: by no emulated ones."""
    drawn = Drawn(batches)
    with gear.ReplayBuffer(SCHEMA, STEPS, tier="shared", group=group) as buffer:
        with buffer.writer() as writer:
            rows = np.arange(STEPS * ROW_BYTES).reshape(STEPS, ROW_BYTES) * 7 + group.rank
            writer.extend(row=rows.astype(np.uint8))
            writer.end_episode(terminated=True)
        with buffer.loader(
            batch.items,
            sampler=gear.Uniform(),
            outputs={"row": gear.Step()},
            framework="numpy",
            prefetch=0,
            seed=seed,
            locality=batch.locality,
        ) as loader:
            group.barrier()
            before = told(traffic)
            for _ in range(batches):
                got = next(loader)
                owners = got.ids >> 50 & 0xFFF
                nodes = np.array(group.nodes)[owners]
                other = owners != group.rank
                drawn.near += int((other & (nodes == group.node)).sum())
                drawn.far += int((nodes != group.node).sum())
                drawn.near_pairs += len(set(owners[other & (nodes == group.node)].tolist()))
                drawn.far_pairs += len(set(owners[nodes != group.node].tolist()))
                drawn.ids.append(got.ids.tolist())
                check_rows(got["row"], got.ids, owners)
            drawn.tallies = {
                call: [
                    after - one
                    for after, one in zip(told(traffic)[call], before[call], strict=True)
                ]
                for call in before
            }
            group.barrier()
    return drawn


def check_rows(rows: np.ndarray, ids: np.ndarray, owners: np.ndarray) -> None:
    """Each is its owner's: the rows of a rank differ, and those of ranks by the rank."""
    firsts = (rows[:, 0].astype(int) - owners) % 256 * 183 % 256  # 7 * 183 = 1 modulo 256
    wanted = (firsts[:, None] + np.arange(ROW_BYTES)) * 7 + owners[:, None]
    assert np.array_equal(rows, wanted.astype(np.uint8))


def told(traffic: Any) -> dict[str, list[float]]:
    if traffic is None:
        return {}
    return {
        call: [one["calls"], one["messages"], one["bytes"], sum(one["seconds"])]
        for call, one in traffic.tallies().items()
    }


def on_threads(
    ranks: int,
    per_node: int,
    work: Callable[[gear.Group], Drawn],
) -> list[Drawn]:
    """What `work` returns on each rank of a group in this process."""
    groups = gear.Group.loopback(ranks, ranks_per_node=per_node, timeout_s=300)
    with ThreadPoolExecutor(ranks) as pool:
        found = list(pool.map(work, groups))
    for group in groups:
        group.close()
    return found


def summed(ranks: list[Drawn]) -> Drawn:
    all_ = Drawn()
    for one in ranks:
        all_.add(one)
    return all_


def check_bytes(batch: Batch, ranks: list[Drawn]) -> None:
    """To the byte those of the formula, for the items that moved."""
    all_ = summed(ranks)
    still = {one.name: one for one in rounds(batch, Moved())}
    of_moved = rounds(batch, all_.moved)
    for call, names in {
        "allgather": ("agreement", "counts"),
        "exchange": ("parcels",),
    }.items():
        found = [one for one in of_moved if one.name in names]
        # What moved is of all batches, what comes with each of them of one.
        again = (all_.batches - 1) * sum(still[one.name].bytes for one in found)
        messages = (all_.batches - 1) * sum(still[one.name].messages for one in found)
        told = all_.tallies[call]
        assert told[1] == sum(one.messages for one in found) + messages
        assert told[2] == sum(one.bytes for one in found) + again
    assert all_.tallies["read"][0] == all_.tallies["duplicate"][0] == 0


def main() -> None:
    per_node, items, batches, seed, *localities = json.loads(sys.argv[1])
    os.environ["GEAR_NODE"] = f"node {int(os.environ['RANK']) // per_node}"
    group = gear.Group.from_env(timeout_s=60)
    shape = emu.Shape(per_node, group.size // per_node)
    drawn = [
        draw(group, Batch(shape, items, ROW_BYTES, locality), batches, seed)
        for locality in localities
    ]
    print(json.dumps([asdict(one) for one in drawn]))
    group.close()


if __name__ == "__main__":
    main()
