"""Saves that fail or are killed half-way: what was there stays, and nothing of ours is left."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
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
    return [batch.ids.tolist(), batch["x"].tolist(), batch["y"].tolist()]


def load_content(path: Path) -> list[object]:
    with gear.ReplayBuffer.load(path) as buffer:
        return content(buffer)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with gear.ReplayBuffer(SCHEMA, 128, page_steps=8) as buffer:
        write(buffer, 0)
        buffer.save(tmp_path / "replay")
    return tmp_path / "replay"


def listing(path: Path) -> list[str]:
    """Names below `path`, the number of the save taken out."""
    return sorted(re.sub(r"\.\d+\.", ".N.", str(p.relative_to(path))) for p in path.rglob("*"))


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
LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
for target in (path, path + "-first"):
    try:
        buffer.save(target)
    except gear.IoError as error:
        print(error.errno, error)
print(len(buffer))
"""
ENDLESS = """
print("ready", flush=True)
while True:
    buffer.save(path)
    print("saved", flush=True)
"""


def test_file_size_limit_during_save(saved: Path) -> None:
    """Stands for a full disk wherever a small file system cannot be mounted."""
    expected, before = load_content(saved), listing(saved.parent)
    process = run(FILL + LIMITED, saved)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert re.fullmatch(r"\d+ .*replay.*\n\d+ .*replay-first.*\n200000\n", out), out
    assert load_content(saved) == expected
    assert listing(saved.parent) == before, "no half-written rest"


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
        expected, before = load_content(disk / "replay"), listing(disk)
        with gear.ReplayBuffer(SCHEMA, 100_000) as buffer:
            write(buffer, 1, 100_000)
            with pytest.raises(gear.IoError, match=r"replay.*[Nn]o space left"):
                buffer.save(disk / "replay")
            assert len(buffer) == 100_000
        assert load_content(disk / "replay") == expected
        assert listing(disk) == before, "the room is given back"
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
    before = listing(saved.parent)
    for attempt in range(5):
        process = run(FILL + ENDLESS, saved)
        assert process.stdout is not None
        for _ in range(2 if attempt else 1):  # the first time within the very first save
            assert process.stdout.readline() in ("ready\n", "saved\n")
        time.sleep(rng.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=240)
        with gear.ReplayBuffer.load(saved) as buffer:
            assert len(buffer) in (50, 200_000)
    with gear.ReplayBuffer(SCHEMA, 128) as buffer:
        write(buffer, 3)
        buffer.save(saved)
        assert load_content(saved) == content(buffer)
    assert listing(saved.parent) == before, "rests of killed saves are gone"
