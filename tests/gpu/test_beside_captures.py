"""A training step is captured into a CUDA graph while another thread appends, draws and updates."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import pytest
from numbered import SCHEMA, check, write
from places import as_numpy

import gear

torch = pytest.importorskip("torch")

PLACES = [("host", None), ("pinned", "zero_copy"), ("pinned", "staged"), ("device", None)]
CAPACITY = 4096
PREFETCH = 2
SLEEP_CYCLES = 1_000_000_000  # half a second


def numbers(buffer: gear.ReplayBuffer) -> dict[int, int]:
    """Number of every stored step by its id."""
    ids = np.concatenate([episode.ids for episode in buffer.episodes()])
    return dict(
        zip(ids.tolist(), buffer.collect(ids, framework="numpy")["number"].tolist(), strict=True)
    )


def keep_busy(loader: gear.Loader) -> None:
    """Makes what the loader gathers next wait behind half a second of other work: all its blocks
    that are not filled were read on a stream that has that before it."""
    with torch.cuda.stream(torch.cuda.Stream()):
        held = [next(loader) for _ in range(PREFETCH)]
        tensors = [batch["number"] for batch in held]
        torch.cuda._sleep(SLEEP_CYCLES)
        del tensors, held


@pytest.mark.timeout(100)
@pytest.mark.parametrize("sampler", [gear.Uniform(), gear.Weighted()], ids=repr)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(filter(None, place)))
def test_a_capture_and_a_loader_leave_each_other_whole(gpu, place: Any, sampler: Any) -> None:
    """The graph is whole, and every row is that of its id: no page was written under a gather."""
    if gpu.rehearsal:
        pytest.skip("CUDA graphs")
    tier, path = place
    rng = np.random.default_rng(0)
    with gear.ReplayBuffer(SCHEMA, CAPACITY, tier=tier, page_steps=16) as buffer:
        first = write(buffer, 1, [200] * 25, rng)  # full: every further page is taken from others
        number_of = numbers(buffer)
        known = np.array(list(number_of))
        target = torch.zeros(4, device="cuda")
        target += 0  # loads the kernel, which a capture would not allow
        to_gpu = {"framework": "torch", "prefetch": PREFETCH, **gpu.to_gpu(path)}
        with buffer.loader(512, sampler=sampler, seed=1, **to_gpu) as loader:
            for _ in range(8):
                next(loader)
            torch.cuda.synchronize()
            taken: list[gear.Batch] = []

            def beside() -> None:
                number = first
                for _ in range(8):
                    number = write(buffer, number, [96], rng)
                    taken.append(next(loader))
                    buffer.update(known[:300], rng.random(300, np.float32))

            graph = torch.cuda.CUDAGraph()
            keep_busy(loader)
            with ThreadPoolExecutor(1) as other, torch.cuda.stream(torch.cuda.Stream()):
                graph.capture_begin(capture_error_mode="global")
                target += 1
                done = other.submit(beside)
                wait([done])
                target += 1
                graph.capture_end()
            done.result()
            graph.replay()
            torch.cuda.synchronize()
            assert target.tolist() == [2, 2, 2, 2]
            number_of |= numbers(buffer)
            known_rows = 0
            for batch in taken:
                rows = {name: as_numpy(batch[name]) for name in batch}
                check(rows)
                ids = as_numpy(batch.ids).tolist()
                there = [
                    (one, number)
                    for one, number in zip(ids, rows["number"], strict=True)
                    if one in number_of
                ]
                assert [number_of[one] for one, _ in there] == [number for _, number in there]
                known_rows += len(there)
            assert known_rows > 512
