"""GEAR_SIMD: every form of the core's loops draws and delivers the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import hashlib
import numpy as np
import gear
from gear import _core

columns = [("obs", (17,), "float32"), ("action", (6,), "float32"), ("done", (), "bool")]
schema = gear.Schema([gear.Column(*column) for column in columns])
buffer = gear.ReplayBuffer(schema, 3000)
rng = np.random.default_rng(3)
with buffer.writer() as writer:
    for steps in (1, 17, 400, 900):
        writer.extend(
            obs=rng.random((steps, 17), np.float32), action=rng.random((steps, 6), np.float32),
            done=np.zeros(steps, bool), priority=rng.random(steps, np.float32))
        writer.end_episode()
outputs = {"obs": gear.Window(-3, 1), "next": gear.Step(1, "obs")}
outputs |= {"action": gear.Step(), "done": gear.Step()}
found = hashlib.sha256()
weighted = gear.Weighted(alpha=0.7, beta=0.5)
for sampler in (gear.Uniform(), weighted, gear.Sequential(), gear.TopK()):
    loader = buffer.loader(64, sampler=sampler, outputs=outputs, framework="numpy", seed=5)
    for _, batch in zip(range(9), loader):
        for array in (batch.ids, batch.weights, *batch.values()):
            found.update(np.ascontiguousarray(array).tobytes())
        buffer.update(batch.ids, rng.random(batch.size, np.float32))
    loader.close()
print(_core.build_info()["simd"], found.hexdigest())
"""


LEVELS = ("none", "avx2", "avx512")


def levels_here() -> list[str]:
    """What the system says that this processor has."""
    words = set(Path("/proc/cpuinfo").read_text().split())
    needed = ({"avx2", "popcnt"}, {"avx512f", "avx512dq", "avx512vl"})
    found = ["none"]
    for level, flags in zip(LEVELS[1:], needed, strict=True):
        if not flags <= words:
            break
        found.append(level)
    return found


def run(level: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "GEAR_SIMD": level},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_level_gives_the_same_bits() -> None:
    said = {}
    best = levels_here()[-1]
    for level in ("", *LEVELS):
        done = run(level)
        assert done.returncode == 0, done.stderr
        taken, said[level] = done.stdout.split()
        assert taken == (min(level, best, key=LEVELS.index) if level else best)
    assert len(set(said.values())) == 1


@pytest.mark.parametrize("level", ["AVX2", "sse2", "1"])
def test_another_word_is_refused(level: str) -> None:
    done = run(level)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert f"GEAR_SIMD='{level}' is not accepted: set none, avx2 or avx512" in last
