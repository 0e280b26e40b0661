"""Checkpoints whose checksums are right and whose content is not: refused, or harmless."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import crc32c

import gear

SCHEMA = gear.Schema([gear.Column("x", (3,), "int32"), gear.Column("y", (), "uint8")])
VARIANTS: list[dict[str, Any]] = [
    {},
    {"max_times_sampled": 2, "evict": "lowest_priority"},
    {"evict": "lifo", "rate_limit": gear.RateLimit(4.0, 2, 1e6)},
]


def rows(steps: int) -> dict[str, np.ndarray]:
    return {"x": np.ones((steps, 3), np.int32), "y": np.arange(steps, dtype=np.uint8)}


def save_small_buffer(path: Path, variant: dict[str, Any]) -> None:
    """Evictions, closing steps, an open episode, a lookahead: something of everything."""
    with gear.ReplayBuffer(SCHEMA, 40, page_steps=4, **variant) as buffer:
        for steps in (3, 9, 6, 8, 7, 5):
            writer = buffer.writer()
            writer.extend(**rows(steps))
            writer.end_episode(final={"y": 7} if steps % 2 else None)
        open_episode = buffer.writer()
        open_episode.extend(**rows(6))
        buffer.loader(2, outputs={"x": gear.Window(0, 2)}, framework="numpy").close()
        buffer.save(path)


def use(buffer: gear.ReplayBuffer) -> None:
    """Everything that walks the index. GEAR may refuse; it must not fail an invariant or crash."""
    samplers = [gear.Uniform(), gear.Weighted(), gear.Weighted(unit="episode"), gear.Fifo()]
    episodes = buffer.episodes()
    ids = [e.ids for e in episodes]
    calls = [
        lambda: buffer.collect(
            np.concatenate(ids), {"x": gear.Window(-2, 3), "y": gear.Step(1)}, framework="numpy"
        ),
        lambda: buffer.update(np.concatenate(ids), np.ones(sum(map(len, ids)))),
        *(lambda s=s: draw(buffer, s) for s in samplers),
        *(lambda e=e: write(buffer, e.uid) for e in episodes if e.state == "open"),
        *[lambda: write(buffer, None)] * 8,
        buffer.stats,
    ]
    for call in calls:
        try:
            call()
        except (gear.InvalidArgument, gear.OutOfMemory, TimeoutError, ValueError):
            continue


def draw(buffer: gear.ReplayBuffer, sampler: gear.Sampler) -> None:
    with buffer.loader(5, sampler=sampler, framework="numpy", timeout_s=0.01) as loader:
        next(loader)


def write(buffer: gear.ReplayBuffer, episode: int | None) -> None:
    with buffer.writer(episode, timeout_s=0.01) as writer:
        writer.extend(**rows(9))


def mutated(whole: bytes, index_bytes: int, rng: random.Random) -> bytearray:
    data = bytearray(whole)
    for _ in range(rng.choice([1, 1, 2])):
        at = 64 + rng.randrange(index_bytes - 8)
        number = struct.pack("<q", rng.choice([0, -1, 1, 3, 1 << 33, rng.randrange(60)]))
        nan = struct.pack("<d", float("nan"))
        flipped = bytes([data[at] ^ 1 << rng.randrange(8)])
        new = rng.choice([flipped, b"\xff", b"\0", number, number, nan])
        data[at : at + len(new)] = new
    return data


@pytest.mark.parametrize("variant", VARIANTS, ids=range(len(VARIANTS)))
def test_mutated_indexes(tmp_path: Path, variant: dict[str, Any]) -> None:
    path = tmp_path / "replay"
    save_small_buffer(path, variant)
    shard = max(path.iterdir(), key=lambda p: p.stat().st_size)
    whole, manifest = shard.read_bytes(), (path / "MANIFEST").read_text()
    (index_bytes,) = struct.unpack_from("<Q", whole, 16)
    pages_at = -(-(64 + index_bytes) // 4096) * 4096
    rng = random.Random(str(variant))
    outcomes = {"refused": 0, "harmless": 0}
    for case in range(60):
        data = mutated(whole, index_bytes, rng)
        struct.pack_into("<I", data, 40, crc32c(data[64:pages_at]))
        struct.pack_into("<I", data, 60, crc32c(data[:60]))
        shard.write_bytes(data)
        head = manifest[: manifest.index("end ")]
        head = re.sub(r"[0-9a-f]{8}\n$", f"{crc32c(data[:60]):08x}\n", head)
        (path / "MANIFEST").write_text(f"{head}end {crc32c(head.encode()):08x}\n")
        changed = [(i, whole[i], data[i]) for i in range(64, pages_at) if whole[i] != data[i]]
        try:
            buffer = gear.ReplayBuffer.load(path)
        except gear.CorruptData as error:
            outcomes["refused"] += 1
            if shard.name not in str(error):
                pytest.fail(f"case {case} {changed}: {error}")
            continue
        with buffer:
            use(buffer)
        outcomes["harmless"] += 1
    assert outcomes["refused"] > 10
