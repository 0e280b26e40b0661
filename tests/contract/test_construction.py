"""What a buffer can be made of, and what is refused with a sentence."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gear
from gear import _core
from gear.buffer import default_page_steps

SCHEMA = gear.Schema([gear.Column("x", (), "int32"), gear.Column("y", (2,), "uint8")])


def step(number: int) -> dict[str, Any]:
    return {"x": number, "y": np.full(2, number, np.uint8)}


@pytest.mark.parametrize(
    ("capacity", "page_steps", "rounded"),
    [(1, 1, 1), (16, 16, 16), (17, 16, 32), (100, 33, 132), (7, 3, 9)],
)
def test_capacity_is_rounded_up_to_pages(tier, capacity, page_steps, rounded) -> None:
    with tier.buffer(SCHEMA, capacity, page_steps=page_steps) as buffer:
        assert buffer.capacity == rounded
        assert buffer.page_steps == page_steps
        assert buffer.tier == tier.name
        assert buffer.schema == SCHEMA
        assert (len(buffer), buffer.num_episodes, buffer.episodes()) == (0, 0, [])
        assert buffer.stats()["pages"] == rounded // page_steps
        assert buffer.stats()["pages_free"] == rounded // page_steps
        with buffer.writer() as writer:
            writer.extend(x=np.arange(rounded, dtype=np.int32), y=np.zeros((rounded, 2), np.uint8))
        assert len(buffer) == rounded
        assert buffer.stats()["steps_evicted"] == 0


def test_an_empty_buffer_and_a_loader_are_true(tier) -> None:
    """``buffer or default`` is the buffer, also an empty one; only epochs have a length."""
    with tier.buffer(SCHEMA, 64) as buffer:
        assert len(buffer) == 0
        assert buffer
        with buffer.loader(4) as loader:
            assert loader
            with pytest.raises(TypeError, match="endless"):
                len(loader)
        with buffer.loader(4, sampler=gear.Sequential()) as loader:
            assert len(loader) == 0
            assert loader


def test_other_threads_run_while_the_memory_is_made() -> None:
    count = 0
    stop = threading.Event()

    def act() -> None:
        nonlocal count
        while not stop.is_set():
            count += 1
            time.sleep(0)

    def goes_on() -> bool:
        before = count
        _core.Shard(
            [("x", [1024], "uint8")],
            capacity=64 << 10,
            page_steps=1024,
            tier="host",
            name="",
            evict="fifo",
            max_times_sampled=0,
            owner=0,
            rate_limit=None,
        )
        return count > before

    thread = threading.Thread(target=act)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # seconds: a thread runs on until it waits or lets others run
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not goes_on():
            assert time.monotonic() < deadline, "a buffer was made, and no other thread ran"
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()


def test_repr_and_counts_settle_no_priorities(tier, monkeypatch) -> None:
    with tier.buffer(SCHEMA, 64) as buffer:
        with buffer.writer() as writer:
            writer.append(**step(1))
        bytes_held = buffer.stats()["bytes"]

        def refuse(self: gear.ReplayBuffer) -> None:
            raise AssertionError("stats() waits for priorities that a GPU is ahead with")

        monkeypatch.setattr(gear.ReplayBuffer, "stats", refuse)
        assert repr(buffer).endswith(f"(1 of 64 steps, 1 episodes, tier={buffer.tier!r})")
        assert (buffer.num_episodes, buffer.nbytes) == (1, bytes_held)


def test_memory_held_is_the_steps_and_64_bytes_each(tier) -> None:
    schema = gear.Schema(
        [
            gear.Column("obs", (17,), "float32"),
            gear.Column("action", (6,), "float32"),
            gear.Column("reward", (), "float32"),
            gear.Column("done", (), "bool"),
        ]
    )
    capacity = 1 << 20
    with tier.buffer(schema, capacity) as buffer:
        loaders = [buffer.loader(1, sampler=gear.Weighted(unit=u)) for u in ("step", "episode")]
        assert schema.step_bytes == 97
        assert capacity * 97 <= buffer.nbytes <= 1.05 * capacity * (97 + 64)
        for loader in loaders:
            loader.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"capacity": 15, "page_steps": 16}, r"capacity 15.*page of 16"),
        ({"capacity": 0}, r"capacity 0"),
        ({"capacity": -16}, r"capacity.*-16"),
        ({"capacity": 64.5}, r"capacity.*64\.5"),
        ({"capacity": 64, "page_steps": 0}, r"page_steps.*0"),
        ({"capacity": 64, "page_steps": -1}, r"page_steps.*-1"),
        ({"capacity": 1 << 20, "page_steps": 65537}, r"page_steps 65537: 1 to 32768"),
        ({"capacity": 64, "evict": "random"}, r"'random'.*'fifo'.*'lifo'.*'lowest_priority'"),
        ({"capacity": 64, "max_times_sampled": 0}, r"max_times_sampled.*0"),
        ({"capacity": 64, "max_times_sampled": -1}, r"max_times_sampled.*-1"),
        ({"capacity": 64, "max_times_sampled": 1 << 16}, r"max_times_sampled.*65536.*65535"),
        ({"capacity": 1 << 33}, r"8589934592|2\^32"),
        ({"capacity": 1 << 64}, r"capacity"),
    ],
)
def test_buffer_arguments_are_checked(tier, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(gear.InvalidArgument, match=message):
        gear.ReplayBuffer(SCHEMA, **arguments, **tier.arguments())


@pytest.mark.parametrize(
    ("step_bytes", "capacity", "page_steps"),
    [
        (97, 1_000_000, 64),
        (97, 100_000, 64),
        (97, 1 << 16, 64),
        (97, (1 << 16) - 1, 32),  # 1024 pages or more
        (97, (1 << 15) - 1, 16),
        (97, 4097, 16),
        (97, 4096, 1),  # nothing is empty behind short episodes
        (97, 16, 1),
        (1 << 10, 1_000_000, 64),
        ((1 << 10) + 1, 1_000_000, 32),  # 64 KiB a page or less
        (7056, 1_000_000, 16),
        (1 << 20, 1_000_000, 16),
    ],
)
def test_pages_follow_from_schema_and_capacity(step_bytes, capacity, page_steps) -> None:
    assert default_page_steps(step_bytes, capacity) == page_steps


def test_the_default_pages_are_those_of_the_rank_of_least_capacity() -> None:
    def page_steps(rank: int) -> int:
        with gear.ReplayBuffer(SCHEMA, (1 << 20, 1 << 15)[rank], group=groups[rank]) as buffer:
            return buffer.page_steps

    groups = gear.Group.loopback(2, timeout_s=20)
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(page_steps, range(2))) == [32, 32]
    with gear.ReplayBuffer(SCHEMA, 1 << 20) as buffer:
        assert buffer.page_steps == 64
    with gear.ReplayBuffer(SCHEMA, 1 << 20, page_steps=16) as buffer:
        assert buffer.page_steps == 16


def test_capacity_beyond_memory_raises_out_of_memory(tier) -> None:
    schema = gear.Schema([gear.Column("frame", (1 << 30,), "uint8")])
    with pytest.raises(gear.OutOfMemory, match=r"\d+ (bytes|B|GiB|TiB)"):
        gear.ReplayBuffer(schema, 1 << 18, page_steps=1, **tier.arguments())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tier": "disk"}, r"'disk'.*'host'.*'shared'"),
        ({"tier": "host", "name": "mine"}, r"name.*'mine'.*shared"),
        ({"tier": "shared", "name": "a/b"}, r"'a/b'"),
        ({"tier": "shared", "name": "x" * 300}, r"x{20}"),
    ],
)
def test_wrong_tiers_and_names_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(gear.InvalidArgument, match=message):
        gear.ReplayBuffer(SCHEMA, 64, **arguments)


def region_of(buffer: gear.ReplayBuffer) -> Path:
    return Path(f"/dev/shm/{os.environ.get('GEAR_SHM_PREFIX', 'gear')}-{buffer.name}")


def test_shared_memory_without_a_name_is_given_one(tmp_path: Path) -> None:
    with (
        gear.ReplayBuffer(SCHEMA, 64, tier="shared") as first,
        gear.ReplayBuffer(SCHEMA, 64, tier="shared") as second,
    ):
        with first.writer() as writer:
            writer.append(**step(1))
            writer.end_episode()
        first.save(tmp_path / "replay")
        with gear.ReplayBuffer.load(tmp_path / "replay", tier="shared") as third:
            assert third.collect(third.episodes()[0].ids, framework="numpy")["x"].tolist() == [1]
            buffers = (first, second, third)
            assert len({buffer.name for buffer in buffers}) == 3
            regions = [region_of(buffer) for buffer in buffers]
            assert [stat.S_IMODE(region.stat().st_mode) for region in regions] == [0o600] * 3
    assert not any(region.exists() for region in regions)


def test_what_a_killed_process_leaves_under_a_made_up_name_goes_with_the_next() -> None:
    program = """
import gear, os, signal
buffer = gear.ReplayBuffer(gear.Schema([gear.Column("z")]), 64, tier="shared")
print(buffer.name, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert done.returncode == -signal.SIGKILL
    with gear.ReplayBuffer(SCHEMA, 64, tier="shared") as buffer:
        mine = region_of(buffer)
        assert mine.exists()
        assert not mine.with_name(mine.name.replace(str(buffer.name), done.stdout.strip())).exists()


def test_names_of_buffers_without_shared_memory() -> None:
    with gear.ReplayBuffer(SCHEMA, 64) as buffer:
        assert buffer.name is None


@pytest.mark.parametrize(
    ("tier", "name"),
    [("host", None), ("shared", None), ("shared", f"gear_test_{os.getpid()}_mine")],
    ids=["host", "made-up", "given"],
)
def test_over_a_group_the_name_is_that_of_the_memory(tier: str, name: str | None) -> None:

    def tell(group: gear.Group) -> str | None:
        with gear.ReplayBuffer(SCHEMA, 64, tier=tier, name=name, group=group) as buffer:
            group.barrier()
            if name is not None:
                assert region_of(buffer).exists()
            group.barrier()
            return buffer.name

    groups = gear.Group.loopback(2, timeout_s=20)
    with ThreadPoolExecutor(2) as threads:
        names = list(threads.map(tell, groups))
    if tier == "host":
        assert names == [None, None]
    elif name is not None:
        assert names == [f"{name}-rank0", f"{name}-rank1"]
    else:
        begin = str(names[0]).removesuffix("-rank0")
        assert begin
        assert names == [f"{begin}-rank0", f"{begin}-rank1"]


def test_a_shared_name_in_use_is_refused() -> None:
    name = f"gear_test_{os.getpid()}_two"
    other = gear.Schema([gear.Column("x", (), "int64")])
    with gear.ReplayBuffer(SCHEMA, 64, tier="shared", name=name) as buffer:
        assert buffer.name == name
        with buffer.writer() as writer:
            writer.append(**step(1))
        with pytest.raises(gear.InvalidArgument, match=rf"{name}.*{SCHEMA.hash}.*{other.hash}"):
            gear.ReplayBuffer(other, 64, tier="shared", name=name)
        with pytest.raises(gear.InvalidArgument, match=name):
            gear.ReplayBuffer(SCHEMA, 64, tier="shared", name=name)
        assert buffer.collect(buffer.episodes()[0].ids, framework="numpy")["y"].tolist() == [[1, 1]]
    with gear.ReplayBuffer(other, 64, tier="shared", name=name) as buffer:
        assert len(buffer) == 0, "the name is free again"


def test_a_shared_region_is_private_and_goes_with_its_owner() -> None:
    name = f"gear_test_{os.getpid()}_mode"

    def regions() -> list[Path]:
        return [p for p in Path("/dev/shm").iterdir() if name in p.name]

    with gear.ReplayBuffer(SCHEMA, 64, tier="shared", name=name):
        assert [stat.S_IMODE(p.stat().st_mode) for p in regions()] == [0o600]
    assert regions() == []


def test_memory_is_given_back() -> None:
    """Closed writers and loaders, batches and tensors do not hold the buffer's memory."""
    name = f"gear_test_{os.getpid()}_back"
    buffer = gear.ReplayBuffer(SCHEMA, 64, tier="shared", name=name)
    writer = buffer.writer()
    writer.extend(x=np.arange(9, dtype=np.int32), y=np.zeros((9, 2), np.uint8))
    writer.close()
    loader = buffer.loader(4, framework="numpy")
    batch = next(loader)
    one = buffer.collect(batch.ids, framework="numpy")
    loader.close()
    buffer.close()
    assert not [p for p in Path("/dev/shm").iterdir() if name in p.name]
    assert np.array_equal(one["x"], batch["x"])
    with pytest.raises(gear.InvalidArgument, match="closed"):
        writer.append(**step(1))


def test_the_shared_name_of_a_killed_process_can_be_taken() -> None:
    name = f"gear_test_{os.getpid()}_killed"
    program = f"""
import gear, os, signal
schema = gear.Schema([gear.Column("z", (9,), "int64")])
buffer = gear.ReplayBuffer(schema, 640, tier="shared", name={name!r})
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == -signal.SIGKILL
    with gear.ReplayBuffer(SCHEMA, 64, tier="shared", name=name) as buffer:
        with buffer.writer() as writer:
            writer.append(**step(1))
        assert len(buffer) == 1


def test_a_refused_buffer_leaves_no_region_behind() -> None:
    name = f"gear_test_{os.getpid()}_refused"
    with pytest.raises(gear.InvalidArgument):
        gear.ReplayBuffer(SCHEMA, 64, tier="shared", name=name, evict="random")
    with gear.ReplayBuffer(SCHEMA, 64, tier="shared", name=name) as buffer:
        assert buffer.tier == "shared"


def test_append_without_a_free_page_raises_out_of_memory(tier) -> None:
    with tier.buffer(SCHEMA, 8, page_steps=4) as buffer:
        first, second, third = (buffer.writer() for _ in range(3))
        first.append(**step(1))
        second.append(**step(2))
        with pytest.raises(gear.OutOfMemory, match=r"2 pages of 4.*open.*capacity"):
            third.append(**step(3))
        assert [e.end for e in buffer.episodes() if e.end] == [1, 1]
        first.end_episode()
        third.append(**step(3))
        stored = [buffer.collect(e.ids, framework="numpy")["x"].tolist() for e in buffer.episodes()]
        assert stored == [[2], [3]]


def test_group(tier, monkeypatch: pytest.MonkeyPatch) -> None:
    group = gear.Group.single()
    assert (group.rank, group.size) == (0, 1)
    for name in ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert gear.Group.from_env().size == 1
    with gear.ReplayBuffer(SCHEMA, 64, group=group, **tier.arguments()) as buffer:
        assert len(buffer) == 0
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(gear.InvalidArgument, match=r"2"):
        gear.Group.from_env()
