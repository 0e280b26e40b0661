"""RateLimit: who is ahead waits for the other, and not for ever where a timeout was given."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import gear

SCHEMA = gear.Schema([gear.Column("x", (), "int32")])


def rows(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int32)


def wait_until(condition, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return bool(condition())


def test_sampling_waits_for_min_steps(tier) -> None:
    limit = gear.RateLimit(samples_per_insert=100.0, min_steps=10, slack=1000.0)
    with (
        tier.buffer(SCHEMA, 64, rate_limit=limit) as buffer,
        buffer.writer() as writer,
        buffer.loader(4, framework="numpy", timeout_s=0.05) as loader,
    ):
        for steps in (0, 9):
            writer.extend(x=rows(steps))
            began = time.monotonic()
            with pytest.raises(TimeoutError, match=r"0\.05"):
                next(loader)
            assert time.monotonic() - began > 0.04
        writer.append(x=9)
        assert next(loader).size == 4


def test_a_waiting_loader_is_released_by_an_append(tier) -> None:
    limit = gear.RateLimit(samples_per_insert=100.0, min_steps=10, slack=1000.0)
    with tier.buffer(SCHEMA, 64, rate_limit=limit) as buffer, buffer.writer() as writer:
        loader = buffer.loader(4, framework="numpy")
        sizes: list[int] = []
        thread = threading.Thread(target=lambda: sizes.append(next(loader).size))
        thread.start()
        writer.extend(x=rows(9))
        time.sleep(0.1)
        assert sizes == []
        writer.append(x=9)
        thread.join(10)
        assert sizes == [4]
        loader.close()


@pytest.mark.parametrize("samples_per_insert", [0.5, 1.0, 4.0])
def test_samples_stay_within_the_slack(tier, samples_per_insert: float) -> None:
    slack = 40.0
    limit = gear.RateLimit(samples_per_insert=samples_per_insert, min_steps=1, slack=slack)
    with tier.buffer(SCHEMA, 512, rate_limit=limit) as buffer, buffer.writer() as writer:
        inserted = delivered = 0
        with buffer.loader(8, framework="numpy", timeout_s=0.02, prefetch=2) as loader:
            for _ in range(5):
                for _ in range(8):
                    writer.append(x=0)
                    inserted += 1
                try:
                    while True:
                        delivered += next(loader).size
                except TimeoutError:
                    pass
                ahead = delivered - samples_per_insert * (inserted - 1)
                assert slack - 8 < ahead <= slack, "as many as allowed, and no more"


def test_a_writer_too_far_ahead_waits_for_samples(tier) -> None:
    limit = gear.RateLimit(samples_per_insert=1.0, min_steps=1, slack=16.0)
    with tier.buffer(SCHEMA, 512, rate_limit=limit) as buffer:

        def insert() -> None:
            with buffer.writer() as writer:
                for i in range(60):
                    writer.append(x=i)

        thread = threading.Thread(target=insert)
        thread.start()
        inserted = lambda: buffer.stats()["steps_inserted"]  # noqa: E731
        assert wait_until(lambda: inserted() == 17)
        time.sleep(0.1)
        assert inserted() == 17, "min_steps and the slack, and then it waits"
        with buffer.loader(1, framework="numpy", timeout_s=1.0, prefetch=1) as loader:
            assert wait_until(lambda: next(loader).size == 1 and inserted() == 60)
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"samples_per_insert": -1.0}, "-1"),
        ({"samples_per_insert": float("nan")}, "nan"),
        ({"samples_per_insert": 1.0, "slack": -2.0}, "-2"),
        ({"samples_per_insert": 1.0, "min_steps": -3}, "-3"),
    ],
)
def test_impossible_limits_are_refused(tier, arguments: dict, message: str) -> None:
    with pytest.raises(gear.InvalidArgument, match=message):
        gear.ReplayBuffer(SCHEMA, 64, rate_limit=gear.RateLimit(**arguments), **tier.arguments())


@pytest.mark.parametrize("waits", ["next(loader)", "[writer.append(x=0) for _ in range(99)]"])
def test_ctrl_c_ends_the_wait(waits: str) -> None:
    program = f"""
import gear
schema = gear.Schema([gear.Column("x", (), "int32")])
limit = gear.RateLimit(samples_per_insert=1.0, min_steps=10, slack=4.0)
buffer = gear.ReplayBuffer(schema, 64, rate_limit=limit)
writer, loader = buffer.writer(), buffer.loader(4)
print("waiting", flush=True)
try:
    {waits}
except KeyboardInterrupt:
    print("interrupted")
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=10)[0] == "interrupted\n"
    assert process.returncode == 0
