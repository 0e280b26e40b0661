"""Device memory, zero-copy (in address order or not), staged: one batch, whichever way it came."""

from __future__ import annotations

import numpy as np
import pytest
from numbered import COLUMNS, SCHEMA, check, outputs, rows, write
from places import as_numpy

import gear

PLACES = [
    ("device", None),
    ("pinned", "zero_copy"),
    ("pinned", "staged"),
    ("pinned", "auto"),
    ("host", "staged"),
    ("host", "auto"),
    ("shared", "auto"),
]
IDS = ["-".join(filter(None, place)) for place in PLACES]


def lengths(total: int) -> list[int]:
    found = np.random.default_rng(3).integers(1, 400, total // 150)
    return [int(n) for n in found]


@pytest.mark.parametrize("batch_size", [1, 33, 4000])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("pad", ["both", "head", "tail"])
@pytest.mark.parametrize("place", PLACES, ids=IDS)
def test_windows(gpu, place, pad: str, packed: bool, batch_size: int) -> None:
    with gpu.place(*place).buffer(SCHEMA, 9000, page_steps=7) as buffer:
        write(buffer, 1, lengths(9000), np.random.default_rng(0))
        with buffer.loader(
            batch_size, outputs=outputs(-3, 4, pad), packed=packed, framework="numpy", prefetch=3
        ) as loader:
            for _ in range(7):
                batch = next(loader)
                assert batch.size == batch_size
                check(batch, None if packed else batch.masks)
                steps = batch.lengths["number"]
                if packed:
                    assert len(batch["number"]) == steps.sum() == batch.cu_seqlens["obs"][-1]
                    assert np.all(batch["number"] > 0)
                else:
                    assert np.array_equal((batch["number"] > 0).sum(1), steps)


SIZES = [*range(1, 66), 68, 96, 127, 128, 132, 255, 256, 260, 1000, 1023, 1024, 4095, 4096, 4100]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("page_steps", [1, 5, 16])
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("place", [("device", None), ("pinned", "zero_copy")], ids=IDS[:2])
def test_every_row_size(gpu, place, part: int, page_steps: int, packed: bool) -> None:
    """Columns of 1 to 4100 bytes a row beside each other, gathered by a kernel."""
    sizes = SIZES[part::4]
    columns = [gear.Column(f"c{size}", (size,), "uint8") for size in sizes]
    schema = gear.Schema([gear.Column("number", (), "int64"), *columns])
    rng = np.random.default_rng(part)
    values = {f"c{size}": rng.integers(0, 256, (60, size), np.uint8) for size in sizes}
    with gpu.place(*place).buffer(schema, 96, page_steps=page_steps) as buffer:
        with buffer.writer() as writer:
            writer.extend(number=np.arange(1, 61), **values)
        wanted = {name: gear.Window(-2, 2) for name in ("number", *values)}
        with buffer.loader(77, outputs=wanted, packed=packed, framework="numpy") as loader:
            for _ in range(4):
                batch = next(loader)
                number = batch["number"]
                there = number > 0
                assert packed or np.array_equal(there, batch.masks["c1" if part == 0 else "number"])
                for name, rows_of in values.items():
                    expected = np.where(there[..., None], rows_of[number - 1], 0)
                    assert np.array_equal(batch[name], expected), name


@pytest.mark.parametrize("place", PLACES, ids=IDS)
def test_every_column_at_the_anchor(gpu, place) -> None:
    with gpu.place(*place).buffer(SCHEMA, 3000, page_steps=16) as buffer:
        write(buffer, 1, lengths(3000), np.random.default_rng(0))
        ids = np.concatenate([e.ids for e in buffer.episodes()])
        numbers = buffer.collect(ids, framework="numpy")["number"]
        assert len(set(numbers.tolist())) == len(ids)
        number_of = dict(zip(ids.tolist(), numbers.tolist(), strict=True))
        with buffer.loader(500, framework="numpy", seed=4) as loader:
            for _ in range(5):
                batch = next(loader)
                check(batch)
                assert [number_of[i] for i in batch.ids.tolist()] == batch["number"].tolist()


@pytest.mark.parametrize("place", PLACES, ids=IDS)
def test_batches_that_are_large_enough_to_be_ordered(gpu, place) -> None:
    """Hundreds of megabytes: several waves of blocks, and worth a sort by address."""
    size = 20_000 if gpu.rehearsal else 1_000_000
    columns = [*SCHEMA, gear.Column("wide", (64,), "float32")]
    with gpu.place(*place).buffer(gear.Schema(columns), size, page_steps=64) as buffer:
        with buffer.writer() as writer:
            for first in range(1, size, 50_000):
                numbers = np.arange(first, min(first + 50_000, size))
                wide = (numbers[:, None] + np.arange(64)).astype(np.float32)
                writer.extend(wide=wide, **rows(numbers))
        with buffer.loader(size, framework="torch", seed=1, **gpu.to_gpu(place[1])) as loader:
            for _ in range(3):
                batch = next(loader)
                assert batch["wide"].device.type == gpu.device
                check({column.name: as_numpy(batch[column.name]) for column in COLUMNS})
                number = batch["number"]
                assert (batch["wide"][:, 0] == number).all()
                assert (batch["wide"][:, 63] == number + 63).all()
                assert (batch["wide"][:, 17] == number + 17).all()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("prefetch", [0, 1, 4, 8])
@pytest.mark.parametrize("sampler", [gear.Uniform(), gear.Sequential()], ids=repr)
def test_large_batches_in_flight(gpu, sampler, prefetch: int, packed: bool) -> None:
    """However many are on their way in one go, and left at the end of an epoch: the CPU's batches,
    each as the store was when it was drawn."""
    # More than the GPU translates without a miss (256 MiB): only then rows are ordered.
    size, items = (6000, 900) if gpu.rehearsal else (1_500_000, 200_000)
    number, wide = gear.Column("number", (), "int64"), gear.Column("wide", (64,), "float32")
    schema = gear.Schema([number, wide])
    wanted = {"number": gear.Step(), "wide": gear.Window(-1, 1), "narrow": gear.Step(0, "number")}
    shared = {"sampler": sampler, "outputs": wanted, "packed": packed, "seed": 5}
    place = gpu.place("pinned", "zero_copy")
    steps = np.arange(64)
    with (
        place.buffer(schema, size, page_steps=64) as ours,
        gear.ReplayBuffer(schema, size, page_steps=64) as theirs,
    ):

        def append(first: int, count: int) -> None:
            numbers = np.arange(first, first + count)
            values = {"number": numbers, "wide": (numbers[:, None] + steps).astype(np.float32)}
            for buffer in (ours, theirs):
                with buffer.writer() as writer:
                    writer.extend(**values)
                    writer.end_episode(terminated=True)

        for first in range(1, size, 40_000):
            append(first, min(40_000, size - first))
        one = ours.loader(
            items, framework="torch", prefetch=prefetch, **shared, **gpu.to_gpu("zero_copy")
        )
        other = theirs.loader(items, framework="numpy", prefetch=prefetch, **shared)
        held = []
        for turn in range(16):
            batch, expected = next(one, None), next(other, None)
            assert (batch is None) == (expected is None), f"the epoch ends at {turn}"
            if batch is None or expected is None:
                continue
            for name in expected:
                assert np.array_equal(as_numpy(batch[name]), expected[name]), f"{turn}, {name}"
            assert np.array_equal(as_numpy(batch.ids), expected.ids), turn
            held.append((batch["number"], expected["number"]))
            if isinstance(sampler, gear.Uniform) and turn % 3 == 2:
                append(size + turn * 5000, 5000)
        for got, number in held:
            assert np.array_equal(as_numpy(got), number), "a batch that is kept stays"


@pytest.mark.parametrize("place", PLACES, ids=IDS)
def test_stats_say_which_way(gpu, place) -> None:
    tier, path = place
    with gpu.place(*place).buffer(SCHEMA, 512) as buffer:
        write(buffer, 1, [100, 50], np.random.default_rng(0))
        for sampler, selection in ((gear.Uniform(), "device"), (gear.Fifo(), "host")):
            loader = buffer.loader(
                32, sampler=sampler, framework="torch", prefetch=1, **gpu.to_gpu(path)
            )
            batches = [next(loader) for _ in range(4)]
            gpu.synchronize()
            stats = loader.stats()
            assert stats["batches"] == 4
            assert stats["items"] == 128
            assert stats["bytes"] == 128 * 101
            assert sum(batch.nbytes for batch in batches) == 128 * 101
            if gpu.rehearsal:
                continue
            by_path = {name: count for name, count in stats["bytes_by_path"].items() if count}
            assert sum(by_path.values()) == stats["bytes"]
            if tier == "device":
                assert set(by_path) == {"device"}
            elif tier in ("host", "shared") or path == "staged":
                assert set(by_path) == {"staged"}
            else:
                assert set(by_path) <= {"zero_copy", "staged"}
                assert path != "zero_copy" or set(by_path) == {"zero_copy"}
            if set(by_path) == {"staged"}:
                selection = "host"
            assert stats["selection"] == selection


def test_a_path_that_cannot_be_is_refused(gpu) -> None:
    if gpu.rehearsal:
        pytest.skip("paths are of GPUs")
    with gear.ReplayBuffer(SCHEMA, 64) as buffer:
        for path, message in (("zero_copy", "pinned"), ("teleport", "zero_copy.*staged")):
            with pytest.raises(gear.InvalidArgument, match=rf"'{path}'.*{message}"):
                buffer.loader(4, device="cuda", path=path, framework="torch")
        with pytest.raises(gear.InvalidArgument, match=r"'numpy'.*(cuda|GPU)"):
            buffer.loader(4, device="cuda", framework="numpy")


@pytest.mark.parametrize("place", PLACES[:3], ids=IDS[:3])
def test_a_handful_of_steps(gpu, place) -> None:
    """No step; one step; windows in which there is none."""
    with gpu.place(*place).buffer(SCHEMA, 64, page_steps=4) as buffer:
        loader = buffer.loader(5, framework="numpy", outputs=outputs(-1, 2))
        with pytest.raises(gear.InvalidArgument, match=r"nothing.*(draw|sample)"):
            next(loader)
        write(buffer, 1, [1], np.random.default_rng(0))
        batch = next(loader)
        assert batch["number"].tolist() == [[0, 1, 0]] * 5
        check(batch, batch.masks)
        with buffer.loader(5, sampler=gear.Fifo(), framework="numpy") as fifo:
            assert next(fifo)["number"].tolist() == [1]
        with buffer.loader(5, sampler=gear.Sequential(), framework="numpy") as epoch:
            assert [b["number"].tolist() for b in epoch] == [[1]]
        one = buffer.collect(buffer.episodes()[0].ids, framework="numpy")
        check(one)
        beyond = {"number": gear.Window(3, 6), "obs": gear.Step(2), "done": gear.Window(-9, -4)}
        none = buffer.collect(buffer.episodes()[0].ids, beyond, packed=True, framework="numpy")
        assert none["obs"].shape == (0, 11)
        assert none.cu_seqlens["number"].tolist() == [0, 0]
        padded = buffer.collect(buffer.episodes()[0].ids, beyond, framework="numpy")
        assert not padded.masks["done"].any()
        assert not padded["number"].any()
