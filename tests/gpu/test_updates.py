"""update() with tensors on the GPU: what the CPU would have done, without waiting for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numbered import SCHEMA, write

import gear

torch = pytest.importorskip("torch")

SAMPLER = gear.Weighted(alpha=0.6, beta=0.4)


@pytest.fixture(params=["pinned", "device"])
def world(request: pytest.FixtureRequest, gpu) -> Any:
    """A buffer with a weighted loader on the GPU, and the ids in it."""
    with gpu.place(request.param).buffer(SCHEMA, 256, page_steps=8) as buffer:
        write(buffer, 1, [40, 1, 23, 64], np.random.default_rng(0))
        loader = buffer.loader(32, sampler=SAMPLER, framework="torch", **gpu.to_gpu())
        next(loader)
        yield buffer, loader, np.concatenate([e.ids for e in buffer.episodes()])


def on(gpu: Any, values: Any, dtype: Any = torch.float32) -> Any:
    return torch.as_tensor(np.asarray(values)).to(dtype).to(gpu.device)


def test_the_last_of_equal_ids_wins(gpu, world) -> None:
    buffer, _, ids = world
    rng = np.random.default_rng(1)
    picks = rng.integers(0, len(ids), 5000)
    values = rng.random(5000, np.float32) * 9
    buffer.update(on(gpu, ids[picks], torch.int64), on(gpu, values))
    expected = buffer_of(values, picks, len(ids))
    found = buffer.priorities(ids)
    assert np.array_equal(found[~np.isnan(expected)], expected[~np.isnan(expected)])
    assert buffer.stats()["max_priority"] == max(values.max(), found.max())


def buffer_of(values: np.ndarray, picks: np.ndarray, size: int) -> np.ndarray:
    """What is there after writing in order; NaN where nothing was written."""
    out = np.full(size, np.nan, np.float32)
    for pick, value in zip(picks, values, strict=True):
        out[pick] = value
    return out


def test_stale_ids_are_ignored_and_counted(gpu, world) -> None:
    buffer, loader, ids = world
    write(buffer, 1000, [100, 60], np.random.default_rng(2))
    stored = set(np.concatenate([e.ids for e in buffer.episodes()]).tolist())
    stale = np.array([i not in stored for i in ids.tolist()])
    assert 0 < stale.sum() < len(ids)
    before = buffer.stats()["stale_updates"]
    buffer.update(on(gpu, ids, torch.int64), on(gpu, np.full(len(ids), 7.5)))
    assert buffer.stats()["stale_updates"] == before + stale.sum()
    assert np.all(buffer.priorities(ids[~stale]) == 7.5)
    fresh = np.array(sorted(stored - set(ids.tolist())))
    assert np.all(buffer.priorities(fresh) != 7.5)
    assert next(loader).size == 32


def update_and_go_on(gpu: Any, world: Any, ids: np.ndarray, priorities: np.ndarray) -> None:
    """A bad update is reported by whichever call comes first after the GPU has seen it."""
    buffer, loader, good = world
    same = buffer.priorities(good[:1])
    buffer.update(on(gpu, ids, torch.int64), on(gpu, priorities))
    gpu.synchronize()
    for _ in range(3):
        next(loader)
        buffer.update(on(gpu, good[:1], torch.int64), on(gpu, same))
        gpu.synchronize()
    buffer.stats()


BAD = [
    (float("nan"), r"nan"),
    (float("inf"), r"inf"),
    (-1.0, r"-1"),
]


@pytest.mark.parametrize(("value", "message"), BAD)
def test_wrong_priorities_are_reported_later_and_not_applied(gpu, world, value, message) -> None:
    buffer, loader, ids = world
    before = buffer.priorities(ids)
    most = buffer.stats()["max_priority"]
    values = np.full(len(ids), 3.25, np.float32)
    values[17] = value
    with pytest.raises(gear.InvalidArgument, match=rf"priorit.*({message}|finite)"):
        update_and_go_on(gpu, world, ids, values)
    assert np.array_equal(buffer.priorities(ids), before), "nothing of it was applied"
    assert buffer.stats()["max_priority"] == most
    # Reported once; then all is well again.
    buffer.update(on(gpu, ids, torch.int64), on(gpu, np.full(len(ids), 2.0)))
    next(loader)
    assert np.all(buffer.priorities(ids) == 2.0)


def test_ids_of_another_buffer_are_reported_later_and_not_applied(gpu, world) -> None:
    buffer, _, ids = world
    before = buffer.priorities(ids)
    foreign = ids.copy()
    foreign[5] |= 1 << 55
    with pytest.raises(gear.InvalidArgument, match=r"id"):
        update_and_go_on(gpu, world, foreign, np.full(len(ids), 9.0))
    assert np.array_equal(buffer.priorities(ids), before)


@pytest.mark.parametrize(
    "make",
    [
        lambda values: values.double(),
        lambda values: values.half(),
        lambda values: values.bfloat16(),
        lambda values: values.requires_grad_(),
        lambda values: torch.stack([values, values], 1)[:, 0],
        lambda values: values.reshape(-1, 1).expand(-1, 2)[:, 1],
        lambda values: torch._neg_view(-values),  # as imag of conj, for which torch keeps a sign
    ],
    ids=["double", "half", "bfloat16", "grad", "strided", "expanded", "negated"],
)
def test_priorities_of_any_real_tensor(gpu, world, make) -> None:
    buffer, _, ids = world
    values = np.arange(len(ids)) % 7 + 0.5
    buffer.update(on(gpu, ids, torch.int64), make(on(gpu, values)))
    assert np.array_equal(buffer.priorities(ids), values.astype(np.float32))


def test_mixed_places(gpu, world) -> None:
    """Ids from the GPU with priorities from the host, and the other way round."""
    buffer, _, ids = world
    count = len(ids)
    buffer.update(on(gpu, ids, torch.int64), np.full(count, 1.5, np.float32))
    assert np.all(buffer.priorities(ids) == 1.5)
    buffer.update(ids, on(gpu, np.full(count, 2.5)))
    assert np.all(buffer.priorities(ids) == 2.5)


def test_an_update_of_no_ids_changes_nothing(gpu, world) -> None:
    buffer, loader, ids = world
    before = buffer.priorities(ids)
    buffer.update(on(gpu, ids[:0], torch.int64), on(gpu, before[:0]))
    next(loader)
    assert np.array_equal(buffer.priorities(ids), before)


def test_sizes_must_agree(gpu, world) -> None:
    buffer, _, ids = world
    with pytest.raises(gear.InvalidArgument, match=r"3.*2|2.*3"):
        buffer.update(on(gpu, ids[:3], torch.int64), on(gpu, [1.0, 2.0]))


@pytest.mark.parametrize("tier", ["host", "pinned", "device"])
def test_without_a_sampler_that_needs_them(gpu, tier) -> None:
    """No copy of the priorities is on the GPU: tensors from there go to the CPU."""
    with gpu.place(tier).buffer(SCHEMA, 256, page_steps=8) as buffer:
        write(buffer, 1, [40, 60], np.random.default_rng(0))
        ids = np.concatenate([e.ids for e in buffer.episodes()])
        loader = buffer.loader(16, framework="torch", **gpu.to_gpu())
        next(loader)
        buffer.update(on(gpu, ids, torch.int64), on(gpu, np.full(len(ids), 6.0)))
        assert np.all(buffer.priorities(ids) == 6.0)
        assert buffer.stats()["max_priority"] == 6.0


def test_a_producer_on_a_side_stream(gpu, world) -> None:
    """Priorities computed late, on the stream that is current when update() is called."""
    if gpu.rehearsal:
        pytest.skip("streams are the GPU's")
    buffer, _, ids = world
    side = torch.cuda.Stream()
    on_gpu = on(gpu, ids, torch.int64)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        values = torch.zeros(len(ids), device="cuda")
        torch.cuda._sleep(100_000_000)
        values += 4.5
        buffer.update(on_gpu, values)
        values.fill_(float("nan"))  # after the update in stream order: must not be seen
    assert np.all(buffer.priorities(ids) == 4.5)
    torch.cuda.synchronize()
