"""One rank draws alone from what all publish; ranks are threads here, and a stopped process in
test_group_faults.py."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gear

SCHEMA = gear.Schema([gear.Column("n", (), "int64")])


def on_ranks(play: Callable[[gear.Group], Any], size: int = 2, **more: Any) -> list[Any]:
    groups = gear.Group.loopback(size, timeout_s=60, **more)
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(play, groups))


def made(group: gear.Group, steps: int = 20, **more: Any) -> gear.ReplayBuffer:
    """A buffer whose steps are numbered, those of rank r from 1000 r on."""
    buffer = gear.ReplayBuffer(SCHEMA, 64, group=group, **({"tier": "shared"} | more))
    with buffer.writer() as writer:
        writer.extend(n=np.arange(steps) + 1000 * group.rank)
        writer.end_episode(terminated=True)
    return buffer


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(gear.InvalidArgument) as raised:
        call()
    return str(raised.value)


@pytest.mark.parametrize(
    ("buffer", "loader", "said"),
    [
        ({"publish": True}, {"remote": "push"}, "'pull' .* or None .* are allowed"),
        ({"publish": True}, {"remote": 3}, "remote 3: a string is allowed"),
        ({}, {}, "a buffer that publishes nothing: make it with publish=True"),
        ({"publish": True}, {"sampler": gear.Weighted()}, r"give gear\.Uniform\(\)"),
        ({"publish": True}, {"sampler": gear.Uniform(unit="episode")}, r"give gear\.Uniform\(\)"),
        ({"publish": True, "max_times_sampled": 3}, {}, "with max_times_sampled: owners do not"),
        ({"publish": True, "rate_limit": gear.RateLimit(8.0)}, {}, "with rate_limit: owners do"),
    ],
)
def test_a_pull_that_cannot_be_is_refused_on_the_rank_that_asks(
    buffer: dict[str, Any], loader: dict[str, Any], said: str
) -> None:
    def play(group: gear.Group) -> str | None:
        with made(group, steps=0 if "rate_limit" in buffer else 20, **buffer) as own:
            if group.rank == 1:
                return None
            return refusal(lambda: own.loader(4, **({"remote": "pull"} | loader)))

    message = on_ranks(play)[0]
    assert re.search(said, message), message


def test_memory_that_nobody_reaches_cannot_be_published() -> None:
    for message in on_ranks(lambda group: refusal(lambda: made(group, tier="host", publish=True))):
        assert "[group] ranks cannot pull from one another" in message
        assert "tier 'shared' or 'pinned'" in message


def test_one_rank_alone_has_nobody_to_pull_from() -> None:
    with gear.ReplayBuffer(SCHEMA, 64, publish=True) as buffer:
        assert "nobody to pull from" in refusal(lambda: buffer.loader(4, remote="pull"))


def test_stores_hold_steps_and_the_others_pull_them(tmp_path: Path) -> None:
    def play(group: gear.Group) -> dict[str, Any]:
        found: dict[str, Any] = {"role": group.role, "stores": group.stores}
        with made(group) as buffer:
            buffer.save(tmp_path / "saved")
        load = gear.ReplayBuffer.load
        with load(tmp_path / "saved", tier="shared", group=group) as buffer, buffer.writer() as w:
            w.extend(n=np.arange(5) + 1000 * group.rank + 500)  # published as it is appended
            group.barrier()
            if group.role == "store":
                found["loader"] = refusal(lambda: buffer.loader(4, remote="pull"))
            else:
                found["loader"] = refusal(lambda: buffer.loader(4))
                found["update"] = refusal(lambda: buffer.update([0], [1.0]))
                with buffer.loader(50, remote="pull", framework="numpy") as loader:
                    found["drawn"] = {int(n) for _ in range(20) for n in next(loader)["n"]}
                    found["stats"] = loader.stats()
            group.barrier()
        return found

    ranks = on_ranks(play, 3, ranks_per_node=3, stores=[1])
    assert [one["role"] for one in ranks] == ["train", "store", "train"]
    assert {one["stores"] for one in ranks} == {(1,)}
    assert "whose role is 'store'" in ranks[1]["loader"]
    steps = {1000 * rank + n for rank in range(3) for n in [*range(20), *range(500, 505)]}
    for one in (ranks[0], ranks[2]):
        assert "ranks [1] have role 'store'" in one["loader"]
        assert "role 'store'" in one["update"]
        assert one["drawn"] == steps
        stats = one["stats"]
        assert stats["local_bytes"] + stats["same_node_bytes"] == stats["bytes"] == 20 * 50 * 8


def test_a_group_of_stores_alone_is_refused() -> None:
    with pytest.raises(gear.InvalidArgument, match="nobody draws"):
        gear.Group.loopback(2, stores=[0, 1])
    with pytest.raises(gear.InvalidArgument, match="role 'serve': train and store are allowed"):
        gear.Group.from_env(role="serve")


def test_ranks_of_one_seed_pull_other_items_and_a_state_goes_on() -> None:
    def play(group: gear.Group) -> list[list[int]]:
        with made(group, publish=True) as buffer:
            group.barrier()
            with buffer.loader(8, remote="pull", framework="numpy", seed=5, prefetch=1) as loader:
                batches = [next(loader)["n"].tolist() for _ in range(3)]
                state = loader.state_dict()
                batches += [next(loader)["n"].tolist() for _ in range(3)]
                loader.load_state_dict(state)
                batches += [next(loader)["n"].tolist() for _ in range(3)]
            group.barrier()
            return batches

    first, second = on_ranks(play)
    assert first[3:6] == first[6:]
    assert first[0] != second[0]


@pytest.mark.parametrize("batch_size", [1, 20_001])
def test_the_one_step_that_may_be_drawn_is_found(batch_size: int) -> None:
    """Among 50,000 of an open episode, whose windows are not complete."""
    seeds = range(6) if batch_size == 1 else [0]
    window = gear.Window(50_000, 50_001, column="n")

    def play(group: gear.Group) -> list[set[int]]:
        found = []
        buffer = gear.ReplayBuffer(SCHEMA, 50_100, group=group, tier="shared", publish=True)
        writer = buffer.writer()
        if group.rank == 0:
            writer.extend(n=np.array([77]))
            writer.end_episode(terminated=True)
            writer.extend(n=np.arange(50_000) + 1000)
        group.barrier()
        for seed in seeds if group.rank == 1 else []:
            outputs = {"n": gear.Step(), "later": window}
            with buffer.loader(
                batch_size, remote="pull", outputs=outputs, seed=seed, framework="numpy", prefetch=0
            ) as loader:
                found.append(set(next(loader)["n"].tolist()))
        group.barrier()
        writer.close()
        buffer.close()
        return found

    assert on_ranks(play)[1] == [{77}] * len(seeds)


def test_nothing_that_may_be_drawn_is_an_error() -> None:
    window = gear.Window(50, 51)

    def play(group: gear.Group) -> str:
        said = ""
        buffer = gear.ReplayBuffer(SCHEMA, 64, group=group, tier="shared", publish=True)
        with buffer, buffer.writer() as writer:
            writer.extend(n=np.arange(20))
            group.barrier()
            if group.rank == 0:
                loader = buffer.loader(
                    4, remote="pull", outputs={"n": window}, framework="numpy", prefetch=0
                )
                said = refusal(lambda: next(loader))
                loader.close()
            group.barrier()
        return said

    said = on_ranks(play)[0]
    assert "40 steps are published by 2 ranks, and none of them may be drawn" in said
