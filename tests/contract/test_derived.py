"""Terminated, IsLast and StepIndex: what a batch says of a step besides its columns."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gear

SCHEMA = gear.Schema(
    [
        gear.Column("obs", (), "float32"),
        gear.Column("reward", (), "float32"),
        gear.Column("index", (), "int64"),
    ]
)
ALL = {
    "index": gear.Step(),
    "terminated": gear.Terminated(),
    "last": gear.IsLast(),
    "number": gear.StepIndex(),
}


def write_episode(writer: gear.Writer, steps: int, first: int = 0) -> None:
    index = np.arange(first, first + steps)
    obs = index.astype(np.float32)
    writer.extend(obs=obs, reward=np.ones(steps, np.float32), index=index)


def end(writer: gear.Writer, terminated: bool, obs: float) -> None:
    writer.end_episode(terminated=terminated, final={"obs": obs})


def test_a_td_target_from_terminated_and_the_closing_step(tier) -> None:
    """r + gamma V(s'), without V where the episode terminated and with it where it was cut off."""
    gamma = 0.5
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        with buffer.writer() as writer:
            for terminated, steps in ((True, 3), (False, 6)):
                write_episode(writer, steps)
                end(writer, terminated, steps)
        outputs = {
            "obs": gear.Step(),
            "reward": gear.Step(),
            "next_obs": gear.Step(1, column="obs"),
            "terminated": gear.Terminated(),
        }
        ids = np.concatenate([episode.ids for episode in buffer.episodes()])
        batch = buffer.collect(ids, outputs, framework="numpy")
    value_of_next = 100 + batch["next_obs"]
    target = batch["reward"] + gamma * (1 - batch["terminated"]) * value_of_next
    assert batch.masks["next_obs"].all()
    terminating = [1 + gamma * 101, 1 + gamma * 102, 1]
    cut_off = [1 + gamma * (100 + step) for step in range(1, 7)]
    np.testing.assert_array_equal(target, terminating + cut_off)


@pytest.mark.parametrize("packed", [False, True])
def test_loaders_deliver_derived_outputs(tier, packed: bool) -> None:
    outputs: dict[str, Any] = {
        "index": gear.Step(),
        "number": gear.StepIndex(),
        "numbers": gear.StepIndex(gear.Window(-2, 3)),
        "indices": gear.Window(-2, 3, column="index"),
        "terminated": gear.Terminated(gear.Window(0, 3, pad="tail")),
        "last": gear.IsLast(gear.Window(0, 3, pad="tail")),
    }
    ends = {True: 9, False: 6}  # length of an episode that terminates, that does not
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        with buffer.writer() as writer:
            for terminated, steps in 4 * list(ends.items()):
                write_episode(writer, steps, first=100 * terminated)
                writer.end_episode(terminated=terminated)
        with buffer.loader(16, outputs=outputs, packed=packed, framework="numpy") as loader:
            for _ in range(8):
                batch = next(loader)
                assert list(batch) == list(outputs)
                assert np.array_equal(batch["number"], batch["index"] % 100)
                filled = batch["indices"] % 100
                assert np.array_equal(batch["numbers"], filled)
                for i in range(batch.size):
                    terminated, number = batch["index"][i] >= 100, int(batch["number"][i])
                    left = min(3, ends[bool(terminated)] - number)
                    there = [number + k == ends[bool(terminated)] - 1 for k in range(left)]
                    row = slice(*batch.cu_seqlens["last"][i : i + 2]) if packed else i
                    got = batch["last"][row]
                    assert got[:left].tolist() == there
                    assert not got[left:].any()
                    assert batch["terminated"][row][:left].tolist() == [
                        one and bool(terminated) for one in there
                    ]
                    assert batch.lengths["last"][i] == left


def test_a_newest_step_is_offered_once_it_is_known_whether_it_is_the_last(tier) -> None:
    """Drawn between its append and end_episode(), its flag would be wrong for ever."""
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        writer = buffer.writer()
        with buffer.loader(8, sampler=gear.Sequential(shuffle=False), outputs=ALL) as loader:
            write_episode(writer, 5)
            assert np.asarray(next(loader)["index"].cpu()).tolist() == [0, 1, 2, 3]
        writer.end_episode(terminated=True)
        with buffer.loader(8, sampler=gear.Sequential(shuffle=False), outputs=ALL) as loader:
            batch = next(loader)
        assert np.asarray(batch["index"].cpu()).tolist() == [0, 1, 2, 3, 4]
        assert np.asarray(batch["terminated"].cpu()).tolist() == [False] * 4 + [True]


def test_step_index_counts_evicted_steps(tier) -> None:
    with tier.buffer(SCHEMA, 16, page_steps=4) as buffer:
        with buffer.writer() as writer:
            write_episode(writer, 30)
            writer.end_episode(terminated=True)
        (episode,) = buffer.episodes()
        assert episode.begin > 0
        batch = buffer.collect(episode.ids, ALL, framework="numpy")
        assert batch["number"].tolist() == list(range(episode.begin, 30))


def test_derived_outputs_are_the_same_after_load(tier, tmp_path) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        with buffer.writer() as writer:
            write_episode(writer, 3)
            end(writer, True, 3)
        buffer.save(tmp_path / "replay")
    with tier.load(tmp_path / "replay") as buffer:
        batch = buffer.collect(buffer.episodes()[0].ids, ALL, framework="numpy")
        assert batch["terminated"].tolist() == [False, False, True]
        assert batch["last"].tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (gear.Terminated(gear.Step(column="obs")), r"'t'.*no column, dtype or scale"),
        (gear.IsLast(gear.Window(0, 2, scale=2.0)), r"'t'.*no column, dtype or scale"),
        (gear.StepIndex(gear.Window(2, 2)), r"'t': window \[2, 2\) is empty"),
        (gear.StepIndex("0"), r"'t' is StepIndex.*gear.Step, gear.Window"),
        (gear.Derived(), r"'t' is Derived.*gear.Step, gear.Window"),
    ],
    ids=repr,
)
def test_wrong_derived_outputs_are_refused(tier, output: gear.Derived, message: str) -> None:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        with pytest.raises(gear.InvalidArgument, match=message):
            buffer.loader(4, outputs={"obs": gear.Step(), "t": output})
        with pytest.raises(gear.InvalidArgument, match="no output of a column"):
            buffer.loader(4, outputs={"t": gear.Terminated()})


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("where", ["host", "shared"])
def test_derived_outputs_over_ranks_are_those_of_one(where: str, packed: bool) -> None:
    """Steps of other ranks, sent or read in place, with evicted ones before them."""
    outputs = {**ALL, "numbers": gear.StepIndex(gear.Window(-1, 2))}
    outputs["indices"] = gear.Window(-1, 2, column="index")

    def run(group: gear.Group) -> int:
        seen = 0
        with gear.ReplayBuffer(SCHEMA, 32, page_steps=4, tier=where, group=group) as buffer:
            with buffer.writer() as writer:
                write_episode(writer, 40 + 10 * group.rank, first=0)
                writer.end_episode(terminated=group.rank == 1)
            with buffer.loader(
                24, outputs=outputs, packed=packed, locality="off", framework="numpy"
            ) as loader:
                for _ in range(10):
                    batch = next(loader)
                    owner = batch.ids >> 50 & 0xFFF
                    assert np.array_equal(batch["number"], batch["index"])
                    last = batch["index"] == 39 + 10 * owner
                    assert np.array_equal(batch["last"], last)
                    assert np.array_equal(batch["terminated"], last & (owner == 1))
                    assert np.array_equal(batch["numbers"], batch["indices"])
                    seen += int(batch["terminated"].sum())
        return seen

    groups = gear.Group.loopback(3, timeout_s=20)
    with ThreadPoolExecutor(3) as threads:
        assert sum(threads.map(run, groups)) > 0
