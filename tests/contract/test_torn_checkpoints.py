"""Checkpoints that are not whole: refused with the file and the reason; the previous one stays."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gear

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


def test_every_bit_counts(saved: Path) -> None:
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
    torn[len(torn) // 2] ^= 4
    file.write_bytes(torn)
    with pytest.raises(gear.CorruptData, match=rf"{re.escape(file.name)}.*page \d+.*checksum"):
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
    with pytest.raises((gear.CorruptData, NotADirectoryError), match="thing"):
        gear.ReplayBuffer.load(tmp_path / "thing")


@pytest.mark.parametrize("make", [foreign_directory, plain_file])
def test_foreign_things_are_not_overwritten(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "thing")
    before = {
        p: p.read_bytes() for p in [*files(tmp_path / "thing"), tmp_path / "thing"] if p.is_file()
    }
    with gear.ReplayBuffer(SCHEMA, 128) as buffer:
        write(buffer, 0)
        with pytest.raises(gear.InvalidArgument, match=r"thing.*checkpoint"):
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


def run(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


FILL = """
import os, sys
import numpy as np
import gear
schema = gear.Schema([gear.Column("x", (5,), "int32"), gear.Column("y", (), "uint8")])
buffer = gear.ReplayBuffer(schema, 200_000)
with buffer.writer() as writer:
    writer.extend(x=np.full((200_000, 5), 3, np.int32), y=np.full(200_000, 3, np.uint8))
path = sys.argv[1]
"""


def test_file_size_limit_during_save(saved: Path) -> None:
    """Stands for a full disk wherever a small file system cannot be mounted."""
    expected = load_content(saved)
    program = (
        FILL
        + f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({1 << 20}, {1 << 20}))
try:
    buffer.save(path)
except OSError as error:
    assert isinstance(error, gear.IoError), type(error)
    print(error.errno, error)
print(len(buffer))
"""
    )
    process = run(program, saved)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert re.match(r"\d+ .*replay", out), out
    assert out.endswith("200000\n"), "the buffer is as it was"
    assert load_content(saved) == expected
    assert [p.name for p in saved.parent.iterdir()] == ["replay"], "no half-written rest"


def test_full_disk_during_save(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", "size=1m", "none", str(disk)]
    if mount is None or os.geteuid() != 0 or subprocess.run([mount, *options]).returncode != 0:
        pytest.skip("needs the right to mount a small file system")
    try:
        with gear.ReplayBuffer(SCHEMA, 128, page_steps=8) as buffer:
            write(buffer, 0)
            buffer.save(disk / "replay")
        expected = load_content(disk / "replay")
        with gear.ReplayBuffer(SCHEMA, 100_000) as buffer:
            write(buffer, 1, 100_000)
            with pytest.raises(gear.IoError, match=r"replay.*[Nn]o space left"):
                buffer.save(disk / "replay")
            assert len(buffer) == 100_000
        assert load_content(disk / "replay") == expected
        assert [p.name for p in disk.iterdir()] == ["replay"], "the room is given back"
        with gear.ReplayBuffer(SCHEMA, 128, page_steps=8) as buffer:
            write(buffer, 2)
            buffer.save(disk / "replay")
            assert load_content(disk / "replay") == content(buffer)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_read_only_directory(saved: Path) -> None:
    expected = load_content(saved)
    target = saved.parent / "replay" if os.geteuid() else Path("/proc/replay")
    if os.geteuid():
        saved.parent.chmod(0o500)
    try:
        with gear.ReplayBuffer(SCHEMA, 128) as buffer:
            write(buffer, 1)
            with pytest.raises(OSError, match="replay"):
                buffer.save(target)
    finally:
        saved.parent.chmod(0o700)
    assert load_content(saved) == expected


def test_kill_during_save_leaves_a_whole_checkpoint(saved: Path) -> None:
    """Killed at random moments of endless saving: what is there loads, and saving goes on."""
    rng = random.Random(2)
    program = (
        FILL
        + """
print("ready", flush=True)
while True:
    buffer.save(path)
    print("saved", flush=True)
"""
    )
    for attempt in range(5):
        process = run(program, saved)
        assert process.stdout is not None
        for _ in range(2 if attempt else 1):  # the first time within the very first save
            assert process.stdout.readline() in ("ready\n", "saved\n")
        time.sleep(rng.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        with gear.ReplayBuffer.load(saved) as buffer:
            assert len(buffer) in (50, 200_000)
    with gear.ReplayBuffer(SCHEMA, 128) as buffer:
        write(buffer, 3)
        buffer.save(saved)
        assert load_content(saved) == content(buffer)
    assert [p.name for p in saved.parent.iterdir()] == ["replay"], "rests of killed saves are gone"
