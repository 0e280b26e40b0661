"""Two GPUs: one keeps the steps and the other takes them; both read one pinned pool."""

from __future__ import annotations

import numpy as np
import pytest
from numbered import SCHEMA, check, outputs, write
from places import as_numpy
from reference import difference

import gear

pytestmark = pytest.mark.gpus(2)
SAMPLERS = [gear.Uniform(), gear.Weighted(), gear.Sequential(), gear.TopK(), gear.Fifo()]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize(
    ("tier", "device"),
    [("device:1", "cuda:0"), ("device:0", "cuda:1"), ("device:1", "cuda:1"), ("pinned", "cuda:1")],
)
def test_the_other_gpus_memory(gpu, tier: str, device: str, sampler, packed: bool) -> None:
    if gpu.rehearsal:
        pytest.skip("memory of GPUs")
    import torch

    with (
        gear.ReplayBuffer(SCHEMA, 3000, page_steps=7, tier=tier) as ours,
        gear.ReplayBuffer(SCHEMA, 3000, page_steps=7) as theirs,
    ):
        shared = {"sampler": sampler, "outputs": outputs(-2, 3), "packed": packed, "seed": 6}
        for buffer in (ours, theirs):
            write(buffer, 1, [400, 3, 900, 70], np.random.default_rng(0))
        one = ours.loader(333, framework="torch", device=device, **shared)
        other = theirs.loader(333, framework="numpy", **shared)
        for turn in range(12):
            batch, expected = next(one, None), next(other, None)
            if expected is None:
                assert batch is None
                continue
            assert batch["obs"].device == torch.device(device)
            assert difference(as_numpy(batch.ids), expected.ids) is None
            for name in expected:
                assert difference(as_numpy(batch[name]), expected[name]) is None
            check({name: as_numpy(batch[name]) for name in batch})
            priorities = (expected.ids * 7 + turn) % 31 / 8
            ours.update(batch.ids, torch.from_numpy(priorities).float().to(device))
            theirs.update(expected.ids, priorities)
            if turn % 4 == 3 and not isinstance(sampler, gear.Sequential):
                for buffer in (ours, theirs):
                    write(buffer, 1500 + 400 * turn, [300], np.random.default_rng(turn))


def test_loaders_to_both_gpus_see_one_set_of_priorities(gpu) -> None:
    if gpu.rehearsal:
        pytest.skip("memory of GPUs")
    import torch

    drawn: list[list[list[int]]] = []
    for tier, devices in (("pinned", ["cuda:0", "cuda:1"]), ("host", ["cpu", "cpu"])):
        with gear.ReplayBuffer(SCHEMA, 3000, page_steps=7, tier=tier) as buffer:
            write(buffer, 1, [400, 3, 900, 70], np.random.default_rng(0))
            loaders = [
                buffer.loader(
                    100, sampler=gear.Weighted(), framework="torch", device=device, seed=seed
                )
                for seed, device in enumerate(devices)
            ]
            seen = []
            for turn in range(12):
                for loader, device in zip(loaders, devices, strict=True):
                    batch = next(loader)
                    seen.append(batch.ids.tolist())
                    buffer.update(batch.ids, ((batch.ids + turn) % 19).float().to(device))
            drawn.append(seen)
            ids = np.concatenate([e.ids for e in buffer.episodes()])
            drawn.append([buffer.priorities(ids).tolist()])
    assert drawn[0] == drawn[2]
    assert drawn[1] == drawn[3]
    assert torch.cuda.device_count() >= 2
