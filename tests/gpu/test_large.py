"""Offsets beyond 32 bits: in the store, in a column's output, in the number of its elements."""

from __future__ import annotations

import numpy as np
import pytest
from numbered import rows

import gear

torch = pytest.importorskip("torch")

MIB = 1 << 20


@pytest.mark.parametrize("tier", ["pinned", "device"])
def test_beyond_five_gigabytes(gpu, tier) -> None:
    """Rows of a megabyte over 5.4 GB, and a batch of 2.3 GB of one column."""
    steps, picks = (60, 20) if gpu.rehearsal else (5200, 2200)
    schema = gear.Schema([gear.Column("x", (MIB,), "uint8"), gear.Column("done", (), "bool")])
    pattern = np.random.default_rng(0).integers(0, 256, MIB, np.uint8)
    with gpu.place(tier).buffer(schema, steps, page_steps=16) as buffer:
        block = np.tile(pattern, (40, 1))
        with buffer.writer() as writer:
            for first in range(0, steps, 40):
                numbers = np.arange(first, first + 40)
                block[:, :8] = numbers.view(np.uint8).reshape(40, 8)
                block[:, -8:] = block[:, :8]
                writer.extend(x=block[: steps - first], done=(numbers % 2 == 1)[: steps - first])
        ids = buffer.episodes()[0].ids
        wanted = np.random.default_rng(1).permutation(steps)[:picks]
        wanted[:3] = [steps - 1, 0, steps - 2]
        batch = buffer.collect(ids[wanted], framework="torch")
        numbers = torch.from_numpy(wanted).to(gpu.device)
        assert torch.equal(batch["x"][:, :8].contiguous().view(torch.int64)[:, 0], numbers)
        assert torch.equal(batch["x"][:, -8:].contiguous().view(torch.int64)[:, 0], numbers)
        assert torch.equal(batch["done"], numbers % 2 == 1)
        middle = torch.from_numpy(pattern[8:-8]).to(gpu.device)
        for part in torch.split(batch["x"], 200):
            assert bool((part[:, 8:-8] == middle).all())


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("tier", ["pinned", "device"])
def test_many_small_rows(gpu, tier, packed: bool) -> None:
    """2.2 GB of one column in rows of 44 bytes: 50 million rows, 550 million vectors."""
    items, length = (1 << 12, 48) if gpu.rehearsal else (1 << 20, 48)
    steps = 100_000
    schema = gear.Schema([gear.Column("number", (), "int64"), gear.Column("obs", (11,), "float32")])
    with gpu.place(tier).buffer(schema, steps, page_steps=16) as buffer:
        values = rows(np.arange(1, steps + 1))
        with buffer.writer() as writer:
            writer.extend(number=values["number"], obs=values["obs"])
        outputs = {"number": gear.Window(0, length), "obs": gear.Window(0, length)}
        with buffer.loader(
            items, outputs=outputs, packed=packed, framework="torch", prefetch=0, **gpu.to_gpu()
        ) as loader:
            batch = next(loader)
        known = torch.from_numpy(values["obs"]).to(gpu.device)
        number, obs = batch["number"].reshape(-1), batch["obs"].reshape(-1, 11)
        assert len(number) == len(obs) > items * (length - 1)
        assert packed or len(obs) * 44 == items * length * 44
        for n, o in zip(torch.split(number, 1 << 22), torch.split(obs, 1 << 22), strict=True):
            expected = known[(n - 1).clamp(min=0)] * (n > 0)[:, None]
            assert torch.equal(o, expected)
        if packed:
            starts = batch.cu_seqlens["number"][:-1].long()
            inside = torch.ones(len(number), dtype=torch.bool, device=gpu.device)
            inside[starts] = False
            assert bool((number[1:] == number[:-1] + 1)[inside[1:]].all())
        else:
            first = batch["number"][:, :1]
            there = batch.masks["number"]
            steps_of = first + torch.arange(length, device=gpu.device)
            assert torch.equal(batch["number"], steps_of * there)
            assert torch.equal(there, steps_of <= steps)
