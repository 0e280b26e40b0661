"""What a program knows of the group that it runs in: who it is, where buffers and batches go."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
from places import HostLoader

import gear
import gear.emu as emu
from distributed.scenarios import ranks_per_node

# Where a scenario's tiers are when batches go to a GPU.
GPU_TIERS = {"host": "pinned", "shared": "device"}


def make_groups(job: dict[str, Any]) -> list[dict[bool, gear.Group]]:
    """Of every rank of this process: the group as it is, and with several nodes emulated."""
    size, timeout_s = job["size"], job["group_timeout_s"]
    if job["implementation"] in ("loopback", "emulated"):
        one = gear.Group.loopback(size, timeout_s=timeout_s)
        several = gear.Group.loopback(
            size, ranks_per_node=ranks_per_node(size), timeout_s=timeout_s
        )
        for group in (one + several) if job["implementation"] == "emulated" else []:
            emu.emulate(group, holds=True)
        return [{False: a, True: b} for a, b in zip(one, several, strict=True)]
    groups = {}
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("RANK", "0")))
    for emulated in (False, True):
        os.environ["GEAR_NODE"] = f"node{rank // ranks_per_node(size) if emulated else 0}"
        groups[emulated] = gear.Group.from_env(timeout_s=timeout_s, transport=job["transport"])
    return [groups]


class Participant:
    """One rank.

    Attributes:
        gpu: batches go to a GPU.
        folder: common to all ranks.
        records: of the program that is being played.
    """

    def __init__(self, job: dict[str, Any], groups: dict[bool, gear.Group]) -> None:
        self.groups = groups
        self.rank, self.size = groups[False].rank, groups[False].size
        self.implementation: str = job["implementation"]
        self.gpu = self.implementation == "nccl"
        if self.gpu:
            import torch

            torch.cuda.set_device(self.rank)  # of this thread
        self.folder = Path(job["folder"])
        self.records: dict[str, np.ndarray] = {}
        self._program = ""
        self._numbers = itertools.count()

    def begin(self, program: str) -> None:
        self._program = program
        self.records = {}

    def record(self, name: str, value: Any) -> None:
        self.records[name] = np.array(value)

    def write(self, path: Path) -> None:
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.savez(file, **self.records)
        part.rename(path)

    def group(self, *, several_nodes: bool = False) -> gear.Group:
        return self.groups[several_nodes]

    def shared_folder(self, name: str) -> Path:
        """A path that all ranks agree on; nothing is there yet."""
        return self.folder / f"{self._program}-{name}"

    def tier(self, tier: str) -> str:
        return GPU_TIERS.get(tier, tier) if self.gpu else tier

    def buffer(
        self,
        schema: gear.Schema,
        capacity: int,
        *,
        tier: str = "host",
        several_nodes: bool = False,
        **more: Any,
    ) -> gear.ReplayBuffer:
        group = self.group(several_nodes=several_nodes)
        if tier == "shared" and self.size == 1 and not self.gpu:  # of several, the group makes one
            more["name"] = f"alone-{os.getpid()}-{next(self._numbers)}"
        return gear.ReplayBuffer(schema, capacity, group=group, tier=self.tier(tier), **more)

    def loader(self, buffer: gear.ReplayBuffer, batch_size: int, **more: Any) -> Any:
        """Gives batches of NumPy arrays."""
        if not self.gpu:
            return buffer.loader(batch_size, **{"framework": "numpy"} | more)
        to_gpu = {"framework": "torch", "device": "cuda", "nccl": True}
        return HostLoader(buffer.loader(batch_size, **to_gpu | more))

    def close(self) -> None:
        for group in self.groups.values():
            group.close()
