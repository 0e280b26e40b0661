"""Acting goes on while the GPU trains: no append waits for a training step."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from numbered import SCHEMA, rows, write

import gear

torch = pytest.importorskip("torch")

STEP_CYCLES = 3_000_000_000  # more than a second
WEIGHTED = gear.Weighted(alpha=0.6, beta=0.4)
PLACES = pytest.mark.parametrize(
    ("tier", "path"),
    [
        ("host", None),
        ("shared", None),
        ("pinned", "staged"),
        ("pinned", "zero_copy"),
        ("device", None),
    ],
    ids=["host", "shared", "staged", "zero_copy", "device"],
)


def training_step() -> Any:
    """Some work that the GPU has before it; the event comes behind it."""
    torch.cuda._sleep(STEP_CYCLES)
    done = torch.cuda.Event()
    done.record()
    return done


@pytest.fixture
def world(gpu, tier: str, path: str | None) -> Any:
    """A buffer with room, its loader by priority, and the ids in it; all warm."""
    if gpu.rehearsal:
        pytest.skip("a GPU that is busy")
    with gpu.place(tier).buffer(SCHEMA, 4096, page_steps=16) as buffer:
        write(buffer, 1, [100] * 4, np.random.default_rng(0))
        loader = buffer.loader(32, sampler=WEIGHTED, framework="torch", **gpu.to_gpu(path))
        for _ in range(8):
            batch = next(loader)
            buffer.update(batch.ids, batch["obs"][:, 0].abs())
        stored = np.concatenate([e.ids for e in buffer.episodes()])
        buffer.collect(stored, framework="numpy")
        buffer.stats()
        gpu.synchronize()
        yield buffer, loader, stored
        loader.close()


@PLACES
def test_beside_an_update_whose_priorities_are_not_made_yet(gpu, world) -> None:
    buffer, _, ids = world
    on_gpu = torch.as_tensor(ids).cuda()
    priorities = torch.full((len(ids),), 2.5, device="cuda")
    torch.cuda.synchronize()
    begun = threading.Event()
    stream = torch.cuda.Stream()

    def update() -> None:
        with torch.cuda.stream(stream):
            begun.set()
            buffer.update(on_gpu, priorities)

    with torch.cuda.stream(stream):
        done = training_step()
    thread = threading.Thread(target=update)
    thread.start()
    begun.wait()
    time.sleep(0.1)  # the update is at its wait, if it has one
    with buffer.writer() as writer:
        for number in range(1, 40):
            writer.append(**rows(np.array(number)))
        in_step = not done.query()
    thread.join()
    assert in_step, "the appends came to their end behind the training step"
    assert np.all(buffer.priorities(ids) == 2.5)


@PLACES
def test_beside_a_loop_that_is_ahead_of_the_gpu(gpu, world) -> None:
    """Draws, updates and appends in turn; from GPU to GPU nothing waits on the host."""
    buffer, loader, _ = world
    if loader.stats()["path"] == "staged":
        pytest.skip("the host selects: a draw waits for the priorities")
    done = training_step()
    with buffer.writer() as writer:
        for number in range(1, 7):
            batch = next(loader)
            writer.append(**rows(np.array(number)))
            buffer.update(batch.ids, batch["obs"][:, 0].abs())
            writer.append(**rows(np.array(100 + number)))
        in_step = not done.query()
    assert in_step, "the appends came to their end behind the training step"
    inserted = buffer.collect(buffer.episodes()[-1].ids, framework="numpy")["number"]
    assert inserted.tolist() == [n for k in range(1, 7) for n in (k, 100 + k)]


@PLACES
@pytest.mark.parametrize("ask", ["stats", "episodes", "collect", "load_state_dict", "loader"])
def test_beside_who_asks_for_what_the_gpu_has_yet_to_make(gpu, world, ask: str) -> None:
    buffer, loader, ids = world
    state = loader.state_dict()
    calls = {
        "stats": buffer.stats,
        "episodes": buffer.episodes,
        "collect": lambda: buffer.collect(ids, framework="numpy"),
        "load_state_dict": lambda: loader.load_state_dict(state),
        "loader": lambda: buffer.loader(16, sampler=WEIGHTED, framework="torch", **gpu.to_gpu()),
    }
    batch = next(loader)
    batch["obs"].sum()
    gpu.synchronize()
    done = training_step()
    if loader.stats()["path"] != "staged":
        buffer.update(batch.ids, batch["obs"][:, 0].abs())  # the mirror's stream has it before it
    begun = threading.Event()

    def work() -> None:
        begun.set()
        calls[ask]()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    time.sleep(0.1)
    with buffer.writer() as writer:
        for number in range(1, 40):
            writer.append(**rows(np.array(number)))
        in_step = not done.query()
    thread.join()
    assert in_step, "the appends came to their end behind the training step"
