"""Checkpoint format 1, byte for byte: what this version writes, and what every later one reads.

`golden/format-1-identity` was written once by `write_golden`, `golden/format-1` before a buffer had
an identity, and `golden/format-1-lookahead` by GEAR 0.1.0, which saved its loaders' look-ahead
(docs/format.md). When this test fails because bytes
differ, the format has changed: raise its number, keep reading this one, and add a golden directory
beside it.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from reference import crc32c

import gear
from gear import checkpoint

GOLDEN = Path(__file__).parent / "golden" / "format-1-identity"
EARLIER = Path(__file__).parent / "golden" / "format-1"
LOOKAHEAD = Path(__file__).parent / "golden" / "format-1-lookahead"
SHARD = "shard-0-of-1.1.gear"
COLUMNS = [
    gear.Column("obs", (2,), "float32"),
    gear.Column("action", (), "int64"),
    gear.Column("flag", (), "bool"),
    gear.Column("half", (), "bfloat16"),
]


def rows(first: int, steps: int) -> dict[str, np.ndarray]:
    number = np.arange(first, first + steps)
    return {
        "obs": np.stack([number, -number], axis=1).astype(np.float32),
        "action": number * 1_000_000_007,
        "flag": number % 3 == 0,
        "half": (0x3F80 + number).astype(np.uint16),
    }


def write_golden(path: Path) -> None:
    """Ended, cut and open episodes, an eviction, a closing step, draws, priorities and limits."""
    limit = gear.RateLimit(samples_per_insert=8.0, min_steps=2, slack=1000.0)
    with gear.ReplayBuffer(
        gear.Schema(COLUMNS),
        32,
        page_steps=4,
        evict="lowest_priority",
        max_times_sampled=3,
        rate_limit=limit,
    ) as buffer:
        writers = [buffer.writer() for _ in range(3)]
        writers[0].extend(**rows(0, 9), priority=np.arange(9) / 8)
        writers[0].end_episode(terminated=True)
        writers[1].extend(**rows(100, 8), priority=2.0)
        closing = {"obs": np.float32([7, -7]), "half": np.uint16(0x4000)}
        writers[1].end_episode(final=closing, weight=0.75)
        writers[2].extend(**rows(200, 14))
        with buffer.loader(
            4, sampler=gear.Fifo(), outputs={"obs": gear.Window(-1, 3)}, prefetch=0
        ) as loader:
            next(loader)
        buffer.update(buffer.episodes()[-1].ids[:3], [4.0, 0.0, 0.5])
        buffer.save(path)


def test_save_writes_the_golden_bytes(tmp_path: Path) -> None:
    write_golden(tmp_path / "replay")
    written = {p.name: p.read_bytes() for p in (tmp_path / "replay").iterdir()}
    assert sorted(written) == ["MANIFEST", SHARD]
    for name, data in written.items():
        expected = (GOLDEN / name).read_bytes()
        assert len(data) == len(expected), name
        differing = [i for i, (a, b) in enumerate(zip(data, expected, strict=True)) if a != b]
        assert differing == [], f"{name} differs from byte {differing[0]} on"


@pytest.mark.parametrize("golden", [GOLDEN, EARLIER, LOOKAHEAD], ids=lambda path: path.name)
def test_load_reads_the_golden_bytes(golden: Path) -> None:
    with gear.ReplayBuffer.load(golden) as buffer:
        assert buffer.schema == gear.Schema(COLUMNS)
        assert (buffer.capacity, buffer.page_steps) == (32, 4)
        episodes = buffer.episodes()
        assert [(e.uid, e.begin, e.end, e.state, e.priority) for e in episodes] == [
            (1, 8, 9, "terminated", 1.0),
            (2, 0, 8, "truncated", 0.75),
            (3, 0, 14, "open", (4.0 + 0.0 + 0.5 + 11 * 2.0) / 14),
        ]
        for episode, first in zip(episodes, (8, 100, 200), strict=True):
            batch = buffer.collect(episode.ids, framework="numpy")
            for name, values in rows(first, episode.end - episode.begin).items():
                assert np.array_equal(batch[name], values), name
        outputs = {name: gear.Step(1, name) for name in ("obs", "action", "flag", "half")}
        last = buffer.collect(episodes[1].ids[-1:], outputs, framework="numpy")
        assert {name: bool(last.masks[name]) for name in outputs} == {
            "obs": True,
            "action": False,
            "flag": False,
            "half": True,
        }
        assert last["obs"].tolist() == [[7, -7]]
        assert last["half"].tolist() == [0x4000]
        stats = buffer.stats()
        assert (stats["steps_inserted"], stats["steps_evicted"], stats["steps_sampled"]) == (
            31,
            8,
            4,
        )
        assert stats["max_priority"] == 4.0
        writer = buffer.writer(episode=3)
        writer.append(**{name: values[0] for name, values in rows(214, 1).items()})
        assert buffer.episodes()[-1].end == 15
    assert checkpoint.inspect(golden)["errors"] == []


def test_the_identity_is_that_of_the_first_row_and_seeds_are_counted() -> None:
    """In the eight bytes that were zero before, or a look-ahead."""
    first = b"".join(values[0].tobytes() for values in rows(0, 1).values())
    written, earlier, lookahead = (
        (folder / SHARD).read_bytes() for folder in (GOLDEN, EARLIER, LOOKAHEAD)
    )
    named = struct.pack("<II", crc32c(first), 1)
    index_bytes = struct.unpack_from("<Q", written, 16)[0]
    at = written.index(named, 64, 64 + index_bytes)
    assert earlier[at : at + 8] == bytes(8)
    assert earlier[64:at] == written[64:at]
    assert earlier[at + 8 : 64 + index_bytes] == written[at + 8 : 64 + index_bytes]
    assert struct.unpack_from("<Q", lookahead, at)[0] == 2


def test_the_layout_of_the_file() -> None:
    """The outer layout as docs/format.md tells it, read without GEAR."""
    data = (GOLDEN / SHARD).read_bytes()
    magic, version, _, index_bytes, page_bytes, pages_used, index_crc, crcs_crc = struct.unpack(
        "<8sIIQQQII", data[:48]
    )
    assert (magic, version) == (b"GEARSHRD", 1)
    assert struct.unpack("<I", data[60:64])[0] == crc32c(data[:60])
    pages_at = -(-(64 + index_bytes) // 4096) * 4096
    crcs_at = pages_at + pages_used * page_bytes
    assert index_crc == crc32c(data[64:pages_at])
    assert crcs_crc == crc32c(data[crcs_at:])
    assert len(data) == crcs_at + 4 * pages_used
    for page in range(pages_used):
        at = pages_at + page * page_bytes
        stored = struct.unpack_from("<I", data, crcs_at + 4 * page)[0]
        assert stored == crc32c(data[at : at + page_bytes]), f"page {page}"
    schema = "obs float32 2\naction int64 \nflag bool \nhalf bfloat16 \n"
    assert data[64:72] == struct.pack("<Q", len(schema))
    assert data[72 : 72 + len(schema)].decode() == schema
    first_rows = np.frombuffer(data, np.float32, 8, pages_at).reshape(4, 2)
    assert first_rows.tolist() == [[8, -8], [0, 0], [0, 0], [0, 0]], "rows not written are zero"
    *lines, end = (GOLDEN / "MANIFEST").read_text().splitlines(keepends=True)
    assert lines == [
        "gear-checkpoint 1\n",
        "save 1\n",
        f"shard 0 1 {SHARD} {len(data)} {crc32c(data[:60]):08x}\n",
    ]
    assert end == f"end {crc32c(''.join(lines).encode()):08x}\n"
