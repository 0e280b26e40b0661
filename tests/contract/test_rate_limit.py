"""RateLimit: who is ahead waits for the other, and not for ever where a timeout was given."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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


def test_a_wait_that_ends_tells_the_counts_and_what_would_end_it(tier) -> None:
    limit = gear.RateLimit(samples_per_insert=4, min_steps=10)
    with tier.buffer(SCHEMA, 512, rate_limit=limit) as buffer:
        writer = buffer.writer(timeout_s=0.0)
        writer.extend(x=rows(3))
        with buffer.loader(32, framework="numpy", timeout_s=0.0, prefetch=0) as loader:
            with pytest.raises(
                TimeoutError,
                match=r"3 steps inserted \(min_steps 10\), 0 items sampled, samples_per_insert 4, "
                r"slack 1000: a batch of 32 is allowed after 7 more steps; append them, in another "
                "thread",
            ):
                next(loader)
            with pytest.raises(TimeoutError, match=r"257 of 400 steps are stored.*after 4 more sa"):
                writer.extend(x=np.resize(rows(9), 400))
            assert len(buffer) == 260
            next(loader)
            writer.extend(x=rows(8))


def test_a_loader_that_may_draw_and_finds_nothing_says_so(tier) -> None:
    limit = gear.RateLimit(samples_per_insert=1.0, min_steps=2)
    with tier.buffer(SCHEMA, 64, rate_limit=limit) as buffer, buffer.writer() as writer:
        writer.extend(x=rows(9))
        outputs = {"x": gear.Window(0, 16)}
        with (
            buffer.loader(4, outputs=outputs, framework="numpy", timeout_s=0.0) as loader,
            pytest.raises(TimeoutError, match="a batch of 4 is allowed, but no stored step may"),
        ):
            next(loader)
        writer.end_episode()


def test_a_rank_that_waits_for_anothers_steps_says_so() -> None:
    groups = gear.Group.loopback(2, timeout_s=20)
    limit = gear.RateLimit(samples_per_insert=1.0, min_steps=5)

    def draw(group: gear.Group) -> str:
        with gear.ReplayBuffer(SCHEMA, 64, rate_limit=limit, group=group) as buffer:
            with buffer.writer() as writer:
                writer.extend(x=rows(9 if group.rank == 0 else 3))
                writer.end_episode()
            with (
                buffer.loader(4, framework="numpy", timeout_s=0.1) as loader,
                pytest.raises(TimeoutError) as caught,
            ):
                next(loader)
            return str(caught.value)

    with ThreadPoolExecutor(2) as threads:
        said = list(threads.map(draw, groups))
    assert "9 steps inserted" in said[0]
    assert "another rank's steps do not suffice yet" in said[0]
    assert "3 steps inserted" in said[1]
    assert "after 2 more steps; append them" in said[1]


def test_waits_end_by_default() -> None:
    for call in (gear.ReplayBuffer.writer, gear.ReplayBuffer.loader):
        assert inspect.signature(call).parameters["timeout_s"].default == 300.0


@pytest.mark.slow  # waits for more than 10 s
def test_a_long_wait_warns_once_with_the_counts(caplog: pytest.LogCaptureFixture) -> None:
    def append() -> None:
        limit = gear.RateLimit(samples_per_insert=4)
        with gear.ReplayBuffer(SCHEMA, 4096, rate_limit=limit) as buffer:
            writer = buffer.writer(timeout_s=10.5)
            for _ in range(251):
                writer.append(x=1)
            with pytest.raises(TimeoutError):
                writer.append(x=1)
            assert len(buffer) == 251
            writer.end_episode()

    def draw() -> None:
        limit = gear.RateLimit(samples_per_insert=4, min_steps=100)
        with gear.ReplayBuffer(SCHEMA, 4096, rate_limit=limit) as buffer:
            with buffer.writer() as writer:
                writer.extend(x=rows(50))
                writer.end_episode()
            loader = buffer.loader(32, framework="numpy", timeout_s=10.5)
            with pytest.raises(TimeoutError):
                next(loader)

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(append), threads.submit(draw)]:
            done.result()
    said = sorted(record.message for record in caplog.records)
    assert len(said) == 2
    assert said[0].startswith(
        "[loader] next() has waited 10 s for the rate limit: 50 steps inserted (min_steps 100), "
        "0 items sampled, samples_per_insert 4, slack 1000: a batch of 32 is allowed after 50 more "
        "steps; append them"
    )
    assert said[1].startswith(
        "[writer] a writer has waited 10 s for the rate limit: 251 steps inserted (min_steps 1), "
        "0 items sampled, samples_per_insert 4, slack 1000: the next step is allowed after 4 more "
        "samples; call next()"
    )


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
    assert process.communicate(timeout=240)[0] == "interrupted\n"
    assert process.returncode == 0


def test_an_extend_larger_than_the_slack_goes_in_as_samples_are_taken(tier) -> None:
    limit = gear.RateLimit(samples_per_insert=1.0, min_steps=1, slack=32.0)
    with tier.buffer(SCHEMA, 512, rate_limit=limit) as buffer, buffer.writer() as writer:
        thread = threading.Thread(target=lambda: writer.extend(x=rows(200)))
        thread.start()
        with buffer.loader(8, framework="numpy", timeout_s=60.0, prefetch=0) as loader:
            for _ in range(21):  # 168 samples: 32 fewer than steps, as the slack allows
                next(loader)
            thread.join()
        assert buffer.stats()["steps_inserted"] == 200


def test_an_extend_that_times_out_says_how_much_is_stored(tier) -> None:
    limit = gear.RateLimit(samples_per_insert=1.0, min_steps=1, slack=32.0)
    with tier.buffer(SCHEMA, 512, rate_limit=limit) as buffer:
        writer = buffer.writer(timeout_s=0.02)
        with pytest.raises(TimeoutError, match="33 of 200 steps are stored"):
            writer.extend(x=rows(200))
        assert len(buffer) == buffer.stats()["steps_inserted"] == 33


@pytest.mark.parametrize(("samples_per_insert", "most"), [(1.0, 31), (4.0, 28)])
def test_a_batch_that_no_order_of_calls_allows_is_refused(
    tier, samples_per_insert: float, most: int
) -> None:
    limit = gear.RateLimit(samples_per_insert=samples_per_insert, slack=16.0)
    with tier.buffer(SCHEMA, 512, rate_limit=limit) as buffer:
        with pytest.raises(gear.InvalidArgument, match=rf"{most + 1}.*slack 16.*= {most} "):
            buffer.loader(most + 1, framework="numpy")
        writer = buffer.writer(timeout_s=0.0)
        with buffer.loader(most, framework="numpy", timeout_s=0.0, prefetch=0) as loader:
            for _ in range(10):
                with pytest.raises(TimeoutError):
                    writer.extend(x=rows(200))
                assert next(loader).size == most


def test_refused_appends_do_not_count(tier) -> None:
    limit = gear.RateLimit(1.0, 1, 10.0)
    with tier.buffer(SCHEMA, 2, page_steps=2, rate_limit=limit) as buffer:
        first, second = buffer.writer(timeout_s=0.2), buffer.writer(timeout_s=0.2)
        first.append(x=1)
        for _ in range(30):
            with pytest.raises(gear.OutOfMemory):
                second.append(x=2)
        first.append(x=1)
        assert len(buffer) == 2


def test_close_ends_an_append_that_waits(tier) -> None:
    limit = gear.RateLimit(1.0, 1, 2.0)
    with tier.buffer(SCHEMA, 64, rate_limit=limit) as buffer:
        writer = buffer.writer()
        errors: list[Exception] = []

        def act() -> None:
            try:
                for i in range(100):
                    writer.append(x=i)
            except gear.InvalidArgument as error:
                errors.append(error)

        thread = threading.Thread(target=act)
        thread.start()
        assert wait_until(lambda: buffer.stats()["steps_inserted"] == 3)
        with pytest.raises(gear.InvalidArgument, match="one thread at a time"):
            writer.append(x=0)
        writer.close()
        thread.join()
        assert len(errors) == 1
        assert "closed" in str(errors[0])
        assert [e.state for e in buffer.episodes()] == ["truncated"]
        with pytest.raises(gear.InvalidArgument, match="closed"):
            writer.append(x=0)


def test_a_signal_handler_may_close_the_writer_that_it_interrupts() -> None:
    program = """
import signal, gear
schema = gear.Schema([gear.Column("x", (), "int32")])
buffer = gear.ReplayBuffer(schema, 64, rate_limit=gear.RateLimit(1.0, 1, 2.0))
writer = buffer.writer()
signal.signal(signal.SIGALRM, lambda *_: writer.close())
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    for i in range(100):
        writer.append(x=i)
except gear.InvalidArgument as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "closed" in done.stdout


def test_a_loaded_buffer_has_the_limit_that_it_is_given(tier, tmp_path: Path) -> None:
    saved = gear.RateLimit(samples_per_insert=2.0, min_steps=4, slack=8.0)

    def appended(buffer: gear.ReplayBuffer, most: int) -> int:
        writer = buffer.writer(timeout_s=0.0)
        for done in range(most):
            try:
                writer.append(x=done)
            except TimeoutError:
                return done
        return most

    def sampled(buffer: gear.ReplayBuffer, most: int) -> int:
        loader = buffer.loader(1, framework="numpy", prefetch=0, timeout_s=0.0)
        for done in range(most):
            try:
                next(loader)
            except TimeoutError:
                return done
        return most

    with tier.buffer(SCHEMA, 128, rate_limit=saved) as buffer:
        assert appended(buffer, 20) == 8
        buffer.save(tmp_path / "replay")

    def load(**more):
        return tier.kind().load(tmp_path / "replay", **tier.arguments(), **more)

    for kept in ({}, {"rate_limit": "saved"}):
        with load(**kept) as buffer:
            assert appended(buffer, 20) == 0
            assert sampled(buffer, 30) == 16
    with load(rate_limit=None) as buffer:
        assert appended(buffer, 20) == 20
        assert sampled(buffer, 30) == 30
        buffer.save(tmp_path / "free")
    with load(rate_limit=gear.RateLimit(1.0, min_steps=6, slack=5.0)) as buffer:
        assert appended(buffer, 20) == 5
        assert sampled(buffer, 30) == 10
        buffer.save(tmp_path / "other")
    with load(rate_limit=gear.RateLimit(1.0, min_steps=11, slack=5.0)) as buffer:
        assert sampled(buffer, 1) == 0
        assert appended(buffer, 20) == 3 + 5
    for name, more in (("free", 20), ("other", 10)):
        with tier.load(tmp_path / name) as buffer:
            assert appended(buffer, 20) == more
    for wrong in ("none", 3, True):
        with pytest.raises(gear.InvalidArgument, match=r"rate_limit .*: give a gear.RateLimit"):
            load(rate_limit=wrong)
    with pytest.raises(gear.InvalidArgument, match="slack"):
        load(rate_limit=gear.RateLimit(9.0, slack=1.0))
