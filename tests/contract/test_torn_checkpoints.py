"""Checkpoints that are not whole, not ours or too new: refused with the file and the reason."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from reference import crc32c

import gear
from gear import checkpoint

SCHEMA = gear.Schema([gear.Column("x", (5,), "int32"), gear.Column("y", (), "uint8")])


def write(buffer: gear.ReplayBuffer, seed: int, steps: int = 50) -> None:
    rng = np.random.default_rng(seed)
    with buffer.writer() as writer:
        writer.extend(
            x=rng.integers(0, 1 << 30, (steps, 5), np.int32), y=rng.integers(0, 9, steps, np.uint8)
        )


def content(buffer: gear.ReplayBuffer) -> list[object]:
    batch = buffer.collect(np.concatenate([e.ids for e in buffer.episodes()]), framework="numpy")
    episodes = [(e.uid, e.begin, e.end, e.state, e.priority) for e in buffer.episodes()]
    return [episodes, batch.ids.tolist(), batch["x"].tolist(), batch["y"].tolist()]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint of a buffer with one episode and pages to spare."""
    with gear.ReplayBuffer(SCHEMA, 128, page_steps=8) as buffer:
        write(buffer, 0)
        buffer.save(tmp_path / "replay")
    return tmp_path / "replay"


def load_content(path: Path) -> list[object]:
    with gear.ReplayBuffer.load(path) as buffer:
        return content(buffer)


def files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file())


def test_load_refuses_any_flipped_bit(saved: Path) -> None:
    """300 single flipped bits, anywhere: refused, and the message names the file."""
    expected = load_content(saved)
    rng = random.Random(1)
    unnoticed = []
    for _ in range(300):
        file = rng.choice(files(saved))
        whole = file.read_bytes()
        at = rng.randrange(len(whole))
        torn = bytearray(whole)
        torn[at] ^= 1 << rng.randrange(8)
        file.write_bytes(torn)
        try:
            assert load_content(saved) == expected, f"byte {at} of {file.name} changed the content"
            unnoticed.append((file.name, at))
        except gear.CorruptData as error:
            if file.name not in str(error):
                pytest.fail(f"byte {at} of {file.name}: {error}")
        file.write_bytes(whole)
    assert unnoticed == []


def test_a_page_that_changed_is_named(saved: Path) -> None:
    """The largest file holds the pages; a message says which one is bad."""
    file = max(files(saved), key=lambda p: p.stat().st_size)
    torn = bytearray(file.read_bytes())
    torn[-200] ^= 4
    file.write_bytes(torn)
    with pytest.raises(
        gear.CorruptData, match=rf"{re.escape(file.name)}.*page 6.*steps 48 to 49.*checksum"
    ):
        gear.ReplayBuffer.load(saved)


@pytest.mark.parametrize("keep", [0.0, 0.01, 0.3, 0.7, 0.999])
def test_truncated_files(saved: Path, keep: float) -> None:
    for file in files(saved):
        whole = file.read_bytes()
        file.write_bytes(whole[: int(len(whole) * keep)])
        with pytest.raises(gear.CorruptData, match=re.escape(file.name)):
            gear.ReplayBuffer.load(saved)
        file.write_bytes(whole)
    load_content(saved)


def test_files_with_more_at_the_end(saved: Path) -> None:
    for file in files(saved):
        whole = file.read_bytes()
        file.write_bytes(whole + b"\0" * 64)
        with pytest.raises(gear.CorruptData, match=re.escape(file.name)):
            gear.ReplayBuffer.load(saved)
        file.write_bytes(whole)


def test_missing_files(saved: Path) -> None:
    for file in files(saved):
        whole = file.read_bytes()
        file.unlink()
        with pytest.raises((gear.CorruptData, OSError), match=re.escape(file.name)):
            gear.ReplayBuffer.load(saved)
        file.write_bytes(whole)


def test_files_of_another_checkpoint(saved: Path, tmp_path: Path) -> None:
    """A mixture of two good checkpoints is not a checkpoint."""
    with gear.ReplayBuffer(SCHEMA, 128, page_steps=8) as buffer:
        write(buffer, 1)
        buffer.save(tmp_path / "other")
    if len(files(saved)) == 1:
        pytest.skip("the format is one file")
    for file in files(saved):
        whole = file.read_bytes()
        file.write_bytes((tmp_path / "other" / file.relative_to(saved)).read_bytes())
        with pytest.raises(gear.CorruptData):
            gear.ReplayBuffer.load(saved)
        file.write_bytes(whole)


def test_a_newer_format_is_refused_by_its_number(saved: Path) -> None:
    manifest = saved / "MANIFEST"
    whole = manifest.read_text()
    body = whole[: whole.index("end ")].replace("gear-checkpoint 1", "gear-checkpoint 5")
    manifest.write_text(f"{body}end {crc32c(body.encode()):08x}\n")
    with pytest.raises(gear.CorruptData, match=r"MANIFEST.*format 5 is newer than format 4"):
        gear.ReplayBuffer.load(saved)
    manifest.write_text(whole)
    shard = max(files(saved), key=lambda p: p.stat().st_size)
    newer = bytearray(shard.read_bytes())
    newer[8:12] = struct.pack("<I", 5)
    newer[60:64] = struct.pack("<I", crc32c(newer[:60]))
    shard.write_bytes(newer)
    with pytest.raises(gear.CorruptData, match=rf"{shard.name}.*format 5 is newer than format 4"):
        gear.ReplayBuffer.load(saved)


def test_inspect_lists_every_bad_page(saved: Path) -> None:
    good = checkpoint.inspect(saved)
    assert good["errors"] == []
    assert (good["steps"], good["episodes"], good["pages_used"], good["pages"]) == (50, 1, 7, 16)
    assert (good["format"], good["page_steps"], good["step_bytes"]) == (1, 8, 21)
    assert good["schema_hash"] == SCHEMA.hash
    assert [tuple(c) for c in good["columns"]] == [("x", (5,), "int32"), ("y", (), "uint8")]
    shard = max(files(saved), key=lambda p: p.stat().st_size)
    torn = bytearray(shard.read_bytes())
    page_bytes = (len(torn) - 4 * 7 - 4096) // 7
    for page in (1, 4):
        torn[4096 + page * page_bytes + 3] ^= 1
    shard.write_bytes(torn)
    errors = checkpoint.inspect(saved)["errors"]
    assert len(errors) == 2
    assert all(shard.name in error and "checksum" in error for error in errors)
    assert "steps 8 to 15" in errors[0]
    assert "steps 32 to 39" in errors[1]


def empty_directory(path: Path) -> None:
    path.mkdir()


def foreign_directory(path: Path) -> None:
    path.mkdir()
    (path / "data.bin").write_bytes(bytes(range(256)) * 40)
    (path / "notes.txt").write_text("not a checkpoint")


def plain_file(path: Path) -> None:
    path.write_text("hello")


FOREIGN = [empty_directory, foreign_directory, plain_file]


@pytest.mark.parametrize("make", FOREIGN)
def test_foreign_things_are_not_loaded(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "thing")
    with pytest.raises((gear.CorruptData, gear.InvalidArgument), match="thing"):
        gear.ReplayBuffer.load(tmp_path / "thing")


@pytest.mark.parametrize("make", [foreign_directory, plain_file])
def test_foreign_things_are_not_overwritten(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "thing")
    before = {
        p: p.read_bytes() for p in [*files(tmp_path / "thing"), tmp_path / "thing"] if p.is_file()
    }
    with gear.ReplayBuffer(SCHEMA, 128) as buffer:
        write(buffer, 0)
        with pytest.raises(
            gear.InvalidArgument, match=r"thing.*(no part of a checkpoint|is a file)"
        ):
            buffer.save(tmp_path / "thing")
    assert {p: p.read_bytes() for p in before} == before
    assert [p.name for p in tmp_path.iterdir()] == ["thing"]


def test_foreign_files_within_a_checkpoint_stay(saved: Path) -> None:
    """Somebody put a file beside ours: it is not ours to delete."""
    (saved / "notes.txt").write_text("mine")
    with gear.ReplayBuffer(SCHEMA, 128) as buffer:
        write(buffer, 7)
        try:
            buffer.save(saved)
        except gear.InvalidArgument as error:
            assert "notes.txt" in str(error)  # noqa: PT017
    assert (saved / "notes.txt").read_text() == "mine"
