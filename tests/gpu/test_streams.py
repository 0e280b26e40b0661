"""Batches and the streams of those who use them: ready before use, untouched until done with."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from numbered import SCHEMA, check, rows, write
from places import as_numpy

import gear
from gear import _core

torch = pytest.importorskip("torch")

LONG = 100_000_000  # clock cycles of a GPU: some 50 ms
PLACES = [("device", None), ("pinned", "zero_copy"), ("pinned", "staged")]


@pytest.fixture(params=PLACES, ids=lambda place: "-".join(filter(None, place)))
def world(request: pytest.FixtureRequest, gpu) -> Any:
    """A loader, and its buffer of a few thousand steps."""
    if gpu.rehearsal:
        pytest.skip("streams are the GPU's")
    tier, path = request.param
    with gpu.place(tier, path).buffer(SCHEMA, 4096) as buffer:
        write(buffer, 1, [900, 70, 2000], np.random.default_rng(0))
        with buffer.loader(
            512, framework="torch", prefetch=2, sampler=gear.Weighted(), **gpu.to_gpu(path)
        ) as made:
            yield made, buffer


def wrong_rows(numbers: np.ndarray, obs: np.ndarray) -> int:
    return int((rows(numbers)["obs"] != obs).any(1).sum())


def test_memory_is_not_reused_before_the_consumer_is_done(world) -> None:
    """The batch is gone for Python long before the stream that reads it gets to it."""
    loader, _ = world
    side = torch.cuda.Stream()
    copies = []
    for _ in range(12):
        with torch.cuda.stream(side):
            batch = next(loader)
            number, obs = batch["number"], batch["obs"]
            torch.cuda._sleep(LONG // 4)
            copies.append((number.clone(), obs.clone()))
            del batch, number, obs
    torch.cuda.synchronize()
    assert [wrong_rows(as_numpy(n), as_numpy(o)) for n, o in copies] == [0] * 12
    assert len({tuple(n.tolist()[:20]) for n, _ in copies}) == 12, "twelve different batches"


def test_a_consumer_that_asks_for_no_order_keeps_its_batch(world) -> None:
    """Stream -1 of DLPack: the memory waits for what the default stream was given all the same."""
    loader, _ = world
    side = torch.cuda.Stream()
    copies = []
    for _ in range(12):
        batch = next(loader)
        with torch.cuda.stream(side):
            number = batch["number"].clone()
        side.synchronize()  # filled: the order that the consumer sees to itself
        obs = torch.utils.dlpack.from_dlpack(
            batch._core.dlpack(_core.Batch.DATA, list(batch).index("obs"), -1)
        )
        torch.cuda._sleep(LONG // 4)
        copies.append((number, obs.clone()))
        del batch, obs
    torch.cuda.synchronize()
    assert [wrong_rows(as_numpy(n), as_numpy(o)) for n, o in copies] == [0] * 12


def test_a_batch_read_on_another_stream_than_it_was_asked_for_on(world) -> None:
    """Made on the current stream, read on a second one that waits for the first, as users do."""
    loader, _ = world
    side = torch.cuda.Stream()
    found = []
    for _ in range(8):
        batch = next(loader)
        number, obs = batch["number"], batch["obs"]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(LONG // 8)
            found.append((number.clone(), obs.clone()))
        # As torch's own rule is: before memory goes back, its stream waits for the reader.
        torch.cuda.current_stream().wait_stream(side)
        del batch, number, obs
    torch.cuda.synchronize()
    assert [wrong_rows(as_numpy(n), as_numpy(o)) for n, o in found] == [0] * 8


def test_writing_to_a_batch_does_not_reach_the_next(world) -> None:
    """A consumer's late writes are done before its memory is filled again."""
    loader, _ = world
    for _ in range(12):
        batch = next(loader)
        torch.cuda._sleep(LONG // 8)
        batch["obs"].fill_(-1)
        batch["number"].fill_(-1)
        del batch
    batch = next(loader)
    check({name: as_numpy(batch[name]) for name in batch})


def test_next_does_not_wait_for_the_gpu(world) -> None:
    """With a GPU that is busy for long, batches and updates are still issued at once."""
    loader, buffer = world
    by_device = loader.stats()["path"] != "staged"  # else priorities are the CPU's: it waits

    def step() -> None:
        batch = next(loader)
        values = batch["obs"].abs().sum(1)
        if by_device:
            buffer.update(batch.ids, values)

    for _ in range(12):
        step()
    torch.cuda.synchronize()
    torch.cuda._sleep(10 * LONG)
    began = time.perf_counter()
    # Staged, prefetch + 2 copies may be on their way, and two of them have not begun perhaps.
    for _ in range(3 if by_device else 1):
        step()
    issued = time.perf_counter() - began
    torch.cuda.synchronize()
    done = time.perf_counter() - began
    assert issued < done / 2, f"issuing took {issued:.3f} s of {done:.3f} s"


def test_tensors_are_of_the_gpu_and_own_their_memory(world) -> None:
    loader, _ = world
    batch = next(loader)
    for name in batch:
        assert batch[name].is_cuda
        assert batch[name].is_contiguous()
    for tensor in (batch.ids, batch.probabilities, batch.weights, batch.masks["obs"]):
        assert tensor.is_cuda
    held = [next(loader) for _ in range(30)]
    saved = [(b["number"].clone(), b["obs"].clone()) for b in held]
    for _ in range(30):
        next(loader)
    torch.cuda.synchronize()
    for one, (number, obs) in zip(held, saved, strict=True):
        assert torch.equal(one["number"], number)
        assert torch.equal(one["obs"], obs)


@pytest.mark.parametrize("tier", ["pinned", "device"])
def test_loaders_in_threads_beside_a_writer(gpu, tier) -> None:
    """Each on a stream of its own; what each sees is always whole."""
    errors: list[BaseException] = []
    with gpu.place(tier).buffer(SCHEMA, 2048, page_steps=8) as buffer:
        write(buffer, 1, [500, 900], np.random.default_rng(0))
        stop = threading.Event()

        def append() -> None:
            rng, first = np.random.default_rng(1), 10_000
            while not stop.is_set():
                first = write(buffer, first, [int(rng.integers(1, 60))], rng)

        def read(seed: int) -> None:
            loader = buffer.loader(64, framework="torch", seed=seed, **gpu.to_gpu())
            for _ in range(200):
                batch = next(loader)
                check({name: as_numpy(batch[name]) for name in batch})
                buffer.update(batch.ids, batch["number"].float() % 7)

        def guarded(task: Any, *arguments: Any) -> None:
            try:
                if gpu.rehearsal:
                    return task(*arguments)
                with torch.cuda.stream(torch.cuda.Stream()):
                    return task(*arguments)
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(read, k)) for k in range(3)]
        writer = threading.Thread(target=guarded, args=(append,))
        for thread in [*threads, writer]:
            thread.start()
        for thread in threads:
            thread.join(60)
        stop.set()
        writer.join(10)
        assert not any(thread.is_alive() for thread in [*threads, writer])
    if errors:
        raise errors[0]


@pytest.mark.parametrize("tier", ["pinned", "device"])
def test_memory_of_the_gpu_is_given_back(gpu, tier) -> None:
    if gpu.rehearsal:
        pytest.skip("memory of the GPU")

    def once() -> None:
        with gpu.place(tier).buffer(SCHEMA, 100_000) as buffer:
            write(buffer, 1, [50_000], np.random.default_rng(0))
            with buffer.loader(
                4096, sampler=gear.Weighted(), framework="torch", **gpu.to_gpu()
            ) as loader:
                for _ in range(4):
                    batch = next(loader)
                    buffer.update(batch.ids, batch.weights)

    once()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    free_before = torch.cuda.mem_get_info()[0]
    for _ in range(20):
        once()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before
    # Other test processes share the GPU: a leak of twenty buffers would be 300 MB and more.
    torch.cuda.empty_cache()
    lost = free_before - torch.cuda.mem_get_info()[0]
    print(f"free memory changed by {lost / 1e6:.0f} MB")
