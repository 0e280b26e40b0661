"""What goes wrong on a GPU says what was asked, what there is, and what to do."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from numbered import SCHEMA, write

import gear

SMALL = gear.Schema([gear.Column("x", (), "int32")])


@pytest.fixture(autouse=True)
def _needs_a_real_one(gpu) -> None:
    if gpu.rehearsal:
        pytest.skip("errors of a GPU")


@pytest.fixture
def num_gpus() -> int:
    import torch

    return int(torch.cuda.device_count())


def test_more_than_the_gpu_has() -> None:
    schema = gear.Schema([gear.Column("frame", (1 << 20,), "uint8")])
    for tier in ("device", "device:0"):
        with pytest.raises(gear.OutOfMemory) as caught:
            gear.ReplayBuffer(schema, 1 << 20, tier=tier, page_steps=1)
        message = str(caught.value)
        assert "device" in message
        assert len([word for word in message.split() if any(c.isdigit() for c in word)]) >= 2, (
            f"bytes asked and bytes free: {message}"
        )
    # The GPU is as it was.
    with gear.ReplayBuffer(SMALL, 64, tier="device") as buffer, buffer.writer() as writer:
        writer.append(x=1)


def test_batches_larger_than_the_gpu() -> None:
    schema = gear.Schema([gear.Column("frame", (1 << 20,), "uint8")])
    with gear.ReplayBuffer(schema, 16, tier="pinned") as buffer:
        with buffer.writer() as writer:
            writer.append(frame=np.zeros(1 << 20, np.uint8))
        with pytest.raises(gear.OutOfMemory):
            next(buffer.loader(1 << 20, device="cuda", framework="torch"))
        assert next(buffer.loader(2, device="cuda", framework="torch")).size == 2


@pytest.mark.parametrize("where", ["tier", "loader"])
@pytest.mark.parametrize("index", [7777, -2])
def test_an_absent_gpu_is_refused(where: str, index: int, num_gpus: int) -> None:
    def make() -> None:
        if where == "tier":
            gear.ReplayBuffer(SMALL, 64, tier=f"device:{index}")
        with gear.ReplayBuffer(SMALL, 64) as buffer:
            buffer.loader(4, device=f"cuda:{index}", framework="torch")

    with pytest.raises((gear.CudaError, gear.InvalidArgument)) as caught:
        make()
    message = str(caught.value)
    assert str(index) in message
    assert index < 0 or isinstance(caught.value, gear.CudaError), "a call of CUDA that was refused"
    assert index < 0 or str(num_gpus) in message or "0" in message, "which there are"


@pytest.mark.parametrize("name", ["cuda:", "cuda:x", "gpu", "tpu"])
def test_an_unknown_device_is_refused(name: str) -> None:
    with (
        gear.ReplayBuffer(SMALL, 64) as buffer,
        pytest.raises(gear.InvalidArgument, match=rf"'{name}'.*cpu"),
    ):
        buffer.loader(4, device=name)


@pytest.mark.parametrize("tier", ["device:", "device:x", "gpu"])
def test_an_unknown_tier_is_refused(tier: str) -> None:
    with pytest.raises(gear.InvalidArgument, match=rf"'{tier}'.*'device"):
        gear.ReplayBuffer(SMALL, 64, tier=tier)


# As a user without the right to lock memory: the right is given up before anything is locked.
LIMITED = """
import ctypes, resource, struct
import gear
libc = ctypes.CDLL(None, use_errno=True)
header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
data = ctypes.create_string_buffer(24)
assert libc.capget(header, data) == 0
words = list(struct.unpack("6I", data.raw))
words[0] &= ~(1 << 14)  # CAP_IPC_LOCK, effective
new = ctypes.create_string_buffer(struct.pack("6I", *words))
assert libc.capset(header, new) == 0, ctypes.get_errno()
resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 << 10, 64 << 10))
schema = gear.Schema([gear.Column("x", (1024,), "uint8")])
try:
    gear.ReplayBuffer(schema, 1 << 15, tier="pinned")
except gear.GearError as error:
    print(type(error).__name__, error)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmLck"))
print(peak)
"""


def test_too_little_memory_may_be_locked() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    message = done.stdout
    assert "ulimit -l" in message, message + done.stderr
    assert "65536" in message or "64" in message, "the limit there is"
    assert "33" in message or "32" in message, "the bytes asked for"


def test_without_a_visible_gpu() -> None:
    """The same build on a login node: imports, works on the CPU, and says what it lacks."""
    program = """
import numpy as np
import gear
schema = gear.Schema([gear.Column("x", (), "int32")])
with gear.ReplayBuffer(schema, 64) as buffer:
    with buffer.writer() as writer:
        writer.extend(x=np.arange(9, dtype=np.int32))
    print(next(buffer.loader(4, framework="numpy")).size)
    for make in (
        lambda: buffer.loader(4, device="cuda"),
        lambda: gear.ReplayBuffer(schema, 64, tier="device"),
        lambda: gear.ReplayBuffer(schema, 64, tier="pinned"),
    ):
        try:
            make()
            print("made")
        except gear.GearError as error:
            print(type(error).__name__, error)
print(gear.check_visible_device())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "4"
    for line in lines[1:4]:
        assert line.startswith(("CudaError", "InvalidArgument")), done.stdout
        assert "GPU" in line or "device" in line
    assert lines[-1] == "0"


def test_a_buffer_goes_on_after_a_refusal() -> None:
    with gear.ReplayBuffer(SCHEMA, 256, tier="device") as buffer:
        write(buffer, 1, [50], np.random.default_rng(0))
        loader = buffer.loader(8, device="cuda", framework="torch")
        first = next(loader)
        with pytest.raises(gear.InvalidArgument):
            buffer.loader(8, device="cuda", framework="torch", outputs={"x": gear.Step()})
        with pytest.raises(gear.InvalidArgument):
            buffer.collect(first.ids + (1 << 33), device="cuda", framework="torch")
        assert next(loader)["obs"].shape == (8, 11)
