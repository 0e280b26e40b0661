"""Loaders without a seed over a group: all ranks take the same one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numbered
import numpy as np

import gear
from distributed.test_other_ranks import on_ranks


def test_all_ranks_take_the_same_seed(tmp_path: Path) -> None:
    """Also where one of them alone made a loader that pulls; and they take over a state's."""

    def draws(group: gear.Group) -> Any:
        with gear.ReplayBuffer(
            numbered.SCHEMA, 64, page_steps=4, tier="shared", publish=True, group=group
        ) as buffer:
            numbered.write(buffer, 1000 * group.rank + 1, [9, 7], np.random.default_rng(1))
            group.barrier()
            if group.rank == 1:
                with buffer.loader(4, framework="numpy", remote="pull") as pulling:
                    assert pulling.seed == 0
            seeds, batches = [], []
            for _ in range(3):
                with buffer.loader(4, framework="numpy") as loader:
                    seeds.append(loader.seed)
                    batches.append(next(loader)["number"].reshape(-1).tolist())
                    state = loader.state_dict()
                    following = next(loader)["number"].reshape(-1).tolist()
            with buffer.loader(4, framework="numpy") as loader:
                assert loader.seed not in seeds
                loader.load_state_dict(state)
                assert loader.seed == seeds[-1]
                assert next(loader)["number"].reshape(-1).tolist() == following
            return seeds, batches

    (seeds, mine), (others, theirs) = on_ranks(2, draws)
    assert seeds == others
    assert len(set(seeds)) == 3
    batches = [sorted(one + other) for one, other in zip(mine, theirs, strict=True)]
    assert batches[0] != batches[1] != batches[2]
