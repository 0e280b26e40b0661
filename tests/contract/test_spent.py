"""max_times_sampled: every step exactly that often, then its room is free."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import gear

SCHEMA = gear.Schema([gear.Column("x", (), "int32")])
SAMPLERS = [gear.Uniform(), gear.Weighted(), gear.Fifo(), gear.Lifo(), gear.TopK()]


def filled(buffer: gear.ReplayBuffer) -> int:
    """Episodes of 1 to 9 steps with rows 0, 1, 2, ... and growing priorities; how many rows."""
    steps = 0
    for length in range(1, 10):
        with buffer.writer() as writer:
            rows = np.arange(steps, steps + length, dtype=np.int32)
            writer.extend(x=rows, priority=1.0 + rows.astype(np.float32))
        steps += length
    return steps


@pytest.mark.parametrize("prefetch", [1, 3])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_every_step_is_delivered_exactly_that_often(tier, sampler, prefetch: int) -> None:
    with tier.buffer(SCHEMA, 160, page_steps=4, max_times_sampled=3) as buffer:
        steps = filled(buffer)
        counts = np.zeros(steps, int)
        with buffer.loader(7, sampler=sampler, framework="numpy", prefetch=prefetch) as loader:
            while counts.sum() < 3 * steps:
                batch = next(loader)
                assert batch.size > 0
                np.add.at(counts, batch["x"], 1)
                assert counts.max() <= 3
            with pytest.raises(gear.InvalidArgument, match="nothing to sample"):
                next(loader)
        assert np.all(counts == 3)
        assert len(buffer) == 0
        assert buffer.num_episodes == 0
        assert buffer.stats()["pages_free"] == buffer.stats()["pages"]
        assert buffer.stats()["steps_sampled"] == 3 * steps


@pytest.mark.parametrize(
    "sampler", [gear.Uniform(unit="episode"), gear.Fifo(unit="episode")], ids=repr
)
def test_episodes_are_delivered_exactly_that_often(tier, sampler) -> None:
    with tier.buffer(SCHEMA, 160, page_steps=4, max_times_sampled=2) as buffer:
        filled(buffer)
        first_rows = np.cumsum([0, *range(1, 9)])
        seen = []
        with buffer.loader(5, sampler=sampler, framework="numpy") as loader:
            while len(seen) < 18:
                seen += next(loader)["x"].tolist()
        assert sorted(seen) == sorted([*first_rows, *first_rows])
        assert buffer.num_episodes == 0


def test_an_open_episode_outlives_its_spent_steps(tier) -> None:
    with tier.buffer(SCHEMA, 32, page_steps=4, max_times_sampled=1) as buffer:
        writer = buffer.writer()
        writer.extend(x=np.arange(6, dtype=np.int32))
        with buffer.loader(6, sampler=gear.Uniform(), framework="numpy", prefetch=1) as loader:
            assert sorted(next(loader)["x"].tolist()) == [0, 1, 2, 3, 4, 5]
            writer.extend(x=np.arange(6, 9, dtype=np.int32))
            assert sorted(next(loader)["x"].tolist()) == [6, 7, 8]
            writer.end_episode(terminated=True)
            assert buffer.num_episodes == 0


def test_sequential_is_refused(tier) -> None:
    with (
        tier.buffer(SCHEMA, 32, max_times_sampled=1) as buffer,
        pytest.raises(gear.InvalidArgument, match=r"Sequential.*max_times_sampled"),
    ):
        buffer.loader(4, sampler=gear.Sequential())


OUT_OF_MEMORY = """
import resource, numpy as np, gear
def mapped():
    line = next(x for x in open("/proc/self/status") if x.startswith("VmSize"))
    return int(line.split()[1]) * 1024
schema = gear.Schema([gear.Column("x", (65536,), "uint8")])
buffer = gear.ReplayBuffer(schema, 4, page_steps=1, max_times_sampled=1)
rows = lambda n: {"x": np.zeros((n, 65536), np.uint8)}
writer = buffer.writer()
writer.extend(**rows(4))
writer.end_episode()
loader = buffer.loader(4, sampler=gear.Fifo(), outputs={"x": gear.Window(0, 1024)}, prefetch=0,
                       framework="numpy")
old = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (mapped() + (64 << 20), old[1]))
try:
    next(loader)
except gear.OutOfMemory as error:
    assert "Cannot allocate memory" in str(error), error
else:
    raise AssertionError("no error")
resource.setrlimit(resource.RLIMIT_AS, old)
writer.extend(**rows(2))
writer.end_episode()
writer.extend(**rows(1))
assert [e.uid for e in buffer.episodes()][-2:] == [2, 3]
assert next(loader).size > 0
assert (3, "open", 1) in [(e.uid, e.state, e.end) for e in buffer.episodes()]
print("ok")
"""


def test_an_episode_in_the_slot_of_one_that_was_spent_is_left_alone() -> None:
    """A batch that found no memory had spent the first episode; a writer evicted it since."""
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ok\n"
