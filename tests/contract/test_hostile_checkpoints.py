"""Checkpoints whose checksums are right and whose content is not: refused, or harmless."""

from __future__ import annotations

import random
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import crc32c

import gear
from gear import checkpoint

pytestmark = pytest.mark.subject("library")

SCHEMA = gear.Schema([gear.Column("x", (3,), "int32"), gear.Column("y", (), "uint8")])
SIDE_BY_SIDE: dict[str, Any] = {"side_by_side": True, "max_times_sampled": 3}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"max_times_sampled": 2, "evict": "lowest_priority"},
    {"evict": "lifo", "rate_limit": gear.RateLimit(4.0, 2, 1e6)},
    SIDE_BY_SIDE,
]


def rows(steps: int) -> dict[str, np.ndarray]:
    return {"x": np.ones((steps, 3), np.int32), "y": np.arange(steps, dtype=np.uint8)}


def save_small_buffer(path: Path, variant: dict[str, Any]) -> None:
    """Evictions, closing steps, open episodes, a lookahead: something of everything. With writers
    side by side the pages of episodes come one between the other, which format 3 keeps."""
    more = dict(variant)
    side_by_side = more.pop("side_by_side", False)
    with gear.ReplayBuffer(SCHEMA, 40, page_steps=4, **more) as buffer:
        if side_by_side:
            environments = buffer.writer(3, autoreset="same_step")
            for step in range(1, 19):
                ends = step % np.array([7, 11, 19]) == 0
                environments.append(
                    **rows(3), terminated=ends, final={"y": np.full(3, 7, np.uint8)}
                )
        else:
            for steps in (3, 9, 6, 8, 7, 5):
                writer = buffer.writer()
                writer.extend(**rows(steps))
                writer.end_episode(final={"y": 7} if steps % 2 else None)
            open_episode = buffer.writer()
            open_episode.extend(**rows(6))
        buffer.loader(2, outputs={"x": gear.Window(0, 2)}, framework="numpy").close()
        assert buffer.stats()["steps_evicted"] > 0
        buffer.save(path)
    assert checkpoint.inspect(path)["format"] == (3 if side_by_side else 1)


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
    with buffer.writer(episode=episode, timeout_s=0.01) as writer:
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


def rewrite(path: Path, shard: Path, data: bytearray, pages_at: int, manifest: str) -> None:
    """Puts the bytes into the checkpoint with checksums that fit."""
    struct.pack_into("<I", data, 40, crc32c(data[64:pages_at]))
    struct.pack_into("<I", data, 60, crc32c(data[:60]))
    shard.write_bytes(data)
    head = manifest[: manifest.index("end ")]
    head = re.sub(r"[0-9a-f]{8}\n$", f"{crc32c(data[:60]):08x}\n", head)
    (path / "MANIFEST").write_text(f"{head}end {crc32c(head.encode()):08x}\n")


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
        rewrite(path, shard, data, pages_at, manifest)
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


HEADER_FIELDS = [("index_bytes", 16, "Q"), ("page_bytes", 24, "Q"), ("pages_used", 32, "Q")]
WILD = {
    "Q": [
        0,
        1,
        3,
        1 << 31,
        1 << 33,
        1 << 62,
        (1 << 63) - 1,
        1 << 63,
        (1 << 64) - 32,
        (1 << 64) - 1,
    ],
    "I": [0, 1, 3, 1 << 16, 1 << 31, (1 << 32) - 1],
    "H": [0, 1, 3, 4, 1 << 15, (1 << 16) - 1],
    "B": [0, 1, 3, 255],
    "d": [0.0, -1.0, -5.0, 1e300, float("inf"), float("-inf"), float("nan")],
    "f": [0.0, -0.0, -5.0, 3e38, float("inf"), float("-inf"), float("nan")],
}


def fields(data: bytes) -> list[tuple[str, int, str]]:
    """(name, offset, struct format) of every number of a shard file's index, by docs/format.md."""
    found = list(HEADER_FIELDS)
    at = 64

    def take(formats: dict[str, str]) -> list[int | float]:
        nonlocal at
        values = []
        for name, form in formats.items():
            found.append((name, at, form))
            values.append(struct.unpack_from(f"<{form}", data, at)[0])
            at += struct.calcsize(f"<{form}")
        return values

    (text,) = take({"schema_bytes": "Q"})
    at += int(text)
    page_steps, pages, _, max_sampled = take(
        {"page_steps": "Q", "num_pages": "Q", "evict": "I", "max_sampled": "I"}
    )
    take({"per_insert": "d", "min_steps": "Q", "slack": "d", "sampled": "Q", "inserted": "Q"})
    take({"next_uid": "Q", "zero": "Q", "max_priority": "f"})
    take({f"counter {i}": "Q" for i in range(5)})
    take({f"generation {i}": "I" for i in range(int(pages))})
    (free,) = take({"num_free": "Q"})
    take({f"free {i}": "I" for i in range(int(free))})
    (episodes,) = take({"num_episodes": "Q"})
    num_used = 0
    for e in range(int(episodes)):
        names = (
            "uid begin end end_again closing_columns priority_sum weight sampled state num_pages"
        )
        forms = "QQQQQQdIBQ"
        formats = {f"{n} of {e}": f for n, f in zip(names.split(), forms, strict=True)}
        count = int(take(formats)[-1])
        take({f"page {i} of {e}": "I" for i in range(count)})
        num_used += count
    take({f"priority {i}": "f" for i in range(num_used * int(page_steps))})
    if max_sampled:
        take({f"times {i}": "H" for i in range(num_used * int(page_steps))})
    (index_bytes,) = struct.unpack_from("<Q", data, 16)
    if at < 64 + index_bytes:
        (kept,) = take({"num_kept": "Q"})
        assert kept == 0
        take({f"order {i}": "I" for i in range(num_used)})
    assert at == 64 + index_bytes
    # Of what there is many of, the first two and the last one.
    last = {name.rstrip("0123456789"): name for name, _, _ in found}
    return [
        one
        for one in found
        if not one[0][-1].isdigit()
        or one[0].split()[-1] in ("0", "1")
        or last[one[0].rstrip("0123456789")] == one[0]
    ]


REFUSED = {
    "page_bytes": [0, 128, 1 << 33],
    "max_priority": [float("nan"), float("inf"), -5.0],
    "next_uid": [0, 1 << 63],
    "counter 0": [0, (1 << 64) - 1],
    "end of 1": [(1 << 64) - 32],
    "weight of 1": [float("nan"), float("inf")],
    "priority 0": [float("nan"), float("inf")],
}


def test_numbers_that_no_buffer_has_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "replay"
    save_small_buffer(path, VARIANTS[0])
    shard = max(path.iterdir(), key=lambda p: p.stat().st_size)
    whole, manifest = shard.read_bytes(), (path / "MANIFEST").read_text()
    (index_bytes,) = struct.unpack_from("<Q", whole, 16)
    pages_at = -(-(64 + index_bytes) // 4096) * 4096
    places = {name: (at, form) for name, at, form in fields(whole)}
    for name, values in REFUSED.items():
        at, form = places[name]
        for value in values:
            data = bytearray(whole)
            struct.pack_into(f"<{form}", data, at, value)
            rewrite(path, shard, data, pages_at, manifest)
            with pytest.raises(gear.CorruptData, match=shard.name):
                gear.ReplayBuffer.load(path)
            with pytest.raises(gear.CorruptData, match=shard.name):
                checkpoint.inspect(path)


def test_pages_larger_than_any_are_refused_with_their_file(tmp_path: Path) -> None:
    path = tmp_path / "replay"
    schema = gear.Schema([gear.Column("x", (1000, 1), "uint8")])
    with gear.ReplayBuffer(schema, 32768, page_steps=32768) as buffer:
        buffer.save(path)
    shard = max(path.iterdir(), key=lambda p: p.stat().st_size)
    whole, manifest = shard.read_bytes(), (path / "MANIFEST").read_text()
    assert whole.count(b"1000,1") == 1
    (index_bytes,) = struct.unpack_from("<Q", whole, 16)
    pages_at = -(-(64 + index_bytes) // 4096) * 4096
    rewrite(path, shard, bytearray(whole.replace(b"1000,1", b"999999")), pages_at, manifest)
    with pytest.raises(gear.CorruptData, match=shard.name):
        gear.ReplayBuffer.load(path)
    with pytest.raises(gear.CorruptData, match=shard.name):
        checkpoint.inspect(path)


def test_an_order_of_pages_that_no_writers_make_is_refused(tmp_path: Path) -> None:
    """One page in another's place: none of the buffer, a free one, one twice, or too early."""
    path = tmp_path / "replay"
    save_small_buffer(path, SIDE_BY_SIDE)
    shard = max(path.iterdir(), key=lambda p: p.stat().st_size)
    whole, manifest = shard.read_bytes(), (path / "MANIFEST").read_text()
    (index_bytes,) = struct.unpack_from("<Q", whole, 16)
    pages_at = -(-(64 + index_bytes) // 4096) * 4096
    (first,) = (at for name, at, _ in fields(whole) if name == "order 0")
    order = np.frombuffer(whole[first : 64 + index_bytes], "<u4").tolist()
    assert len(set(order)) == len(order) > 6
    wrong = [
        [*order[:place], page, *order[place + 1 :]]
        for place in range(len(order))
        for page in (order[place - 1], 10, 1 << 31)
    ]
    wrong += [order[::-1], [*order[1:], order[0]]]
    for pages in wrong:
        data = bytearray(whole)
        data[first : 64 + index_bytes] = np.array(pages, "<u4").tobytes()
        rewrite(path, shard, data, pages_at, manifest)
        with pytest.raises(gear.CorruptData, match=shard.name):
            gear.ReplayBuffer.load(path)
        with pytest.raises(gear.CorruptData, match=shard.name):
            checkpoint.inspect(path)


# Of the four contents one is tried at each commit, and all by night: a minute each.
BY_NIGHT = [(), pytest.mark.nightly]


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [pytest.param(v, id=str(n), marks=BY_NIGHT[n != 1]) for n, v in enumerate(VARIANTS)],
)
def test_every_number_made_wild(tmp_path: Path, variant: dict[str, Any]) -> None:
    """What load takes, it can go on from and save again; what it refuses, inspect refuses too."""
    path = tmp_path / "replay"
    save_small_buffer(path, variant)
    shard = max(path.iterdir(), key=lambda p: p.stat().st_size)
    whole, manifest = shard.read_bytes(), (path / "MANIFEST").read_text()
    (index_bytes,) = struct.unpack_from("<Q", whole, 16)
    pages_at = -(-(64 + index_bytes) // 4096) * 4096
    refused = 0
    for name, at, form in fields(whole):
        for value in WILD[form]:
            data = bytearray(whole)
            struct.pack_into(f"<{form}", data, at, value)
            rewrite(path, shard, data, pages_at, manifest)
            try:
                buffer = gear.ReplayBuffer.load(path)
            except gear.CorruptData:
                refused += 1
                with pytest.raises(gear.CorruptData):
                    checkpoint.inspect(path)
                continue
            except gear.OutOfMemory:
                assert name in ("page_steps", "num_pages")
                continue
            assert checkpoint.inspect(path)["errors"] == [], (name, value)
            with buffer:
                use(buffer)
                buffer.save(tmp_path / "again")
            gear.ReplayBuffer.load(tmp_path / "again").close()
    assert refused > 200


def test_a_small_file_costs_little_memory(tmp_path: Path) -> None:
    """A file names capacities of many times its size: inspect reserves none of them."""
    program = f"""
import resource, gear
from gear import checkpoint
schema = gear.Schema([gear.Column("x", (), "uint8")])
buffer = gear.ReplayBuffer(schema, 1024 * 32768, page_steps=32768)
buffer.save({str(tmp_path / "replay")!r})
del buffer
status = open("/proc/self/status").read().split()
mapped = int(status[status.index("VmSize:") + 1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (mapped + (64 << 20), resource.RLIM_INFINITY))
print(checkpoint.inspect({str(tmp_path / "replay")!r})["pages_used"])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
