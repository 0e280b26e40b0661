"""A run over a group that saves, and one that goes on from what it saved, are the run that did not
save: priorities that the owners have yet to hear of wait for the next draw."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numbered
import numpy as np
import pytest

import gear
from distributed.test_other_ranks import STRIDE, merged, on_ranks, steps_of
from gear import _core

TURNS = 8
AT = 4


class Run:
    """One rank's part of a small run: its draws, and steps without priorities of their own, which
    take the largest that their rank has heard of."""

    def __init__(self, group: gear.Group, buffer: gear.ReplayBuffer, turn: int) -> None:
        self._rank = group.rank
        self.buffer = buffer
        self.turn = turn
        self.loader = buffer.loader(
            6,
            sampler=gear.Weighted(alpha=0.7, beta=0.5),
            outputs={"number": gear.Step()},
            framework="numpy",
            seed=4,
        )

    def write(self) -> None:
        first = self._rank * STRIDE + 100 * self.turn + 1
        with self.buffer.writer() as writer:
            writer.extend(**numbered.rows(np.arange(first, first + 7)))
            writer.end_episode(terminated=True)

    def learn(self) -> tuple[list[int], list[float]]:
        """One draw; the priorities grow from turn to turn."""
        self.turn += 1
        batch = next(self.loader)
        numbers = batch["number"].reshape(-1)
        self.buffer.update(batch.ids, (1 + numbers % 5 + 3 * self.turn).astype(np.float32))
        return numbers.tolist(), batch.weights.tolist()

    def rest(self) -> Any:
        """What is drawn from here on, and every step with its priority."""
        self.write()
        drawn = []
        while self.turn < TURNS:
            drawn.append(self.learn())
            self.write()
        return drawn, steps_of(self.buffer), self.buffer.stats()["max_priority"]


def begun(group: gear.Group, evict: str) -> Run:
    buffer = gear.ReplayBuffer(numbered.SCHEMA, 48, page_steps=4, evict=evict, group=group)
    run = Run(group, buffer, 0)
    run.write()
    while run.turn < AT:
        run.learn()
        if run.turn < AT:
            run.write()
    return run


@pytest.mark.parametrize("evict", ["fifo", "lowest_priority"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_saved_or_not_and_resumed_it_is_one_run(tmp_path: Path, ranks: int, evict: str) -> None:
    def plain(group: gear.Group) -> Any:
        return begun(group, evict).rest()

    def saving(group: gear.Group) -> Any:
        run = begun(group, evict)
        run.buffer.save(tmp_path / "replay")
        run.buffer.save(tmp_path / "replay")
        states[group.rank] = run.loader.state_dict()
        return run.rest()

    def resumed(group: gear.Group) -> Any:
        run = Run(group, gear.ReplayBuffer.load(tmp_path / "replay", group=group), AT)
        run.loader.load_state_dict(states[group.rank])
        run.buffer.save(tmp_path / "again")  # what was loaded and not told yet is saved again
        return run.rest()

    states: dict[int, Any] = {}
    expected = on_ranks(ranks, plain)
    assert on_ranks(ranks, saving) == expected
    assert on_ranks(ranks, resumed) == expected


def test_another_number_of_ranks_is_told(tmp_path: Path) -> None:
    """Loaded by one rank, steps have the priorities that the next draw would have told."""

    def save(group: gear.Group) -> Any:
        run = begun(group, "fifo")
        run.buffer.save(tmp_path / "replay")
        run.learn()  # a draw, which tells what waits; its own updates wait again
        return steps_of(run.buffer)

    told = merged(on_ranks(2, save))
    with gear.ReplayBuffer.load(tmp_path / "replay") as buffer:
        found = steps_of(buffer)
        assert found.keys() == told.keys()
        assert {n: step[-1] for n, step in found.items()} == {n: s[-1] for n, s in told.items()}
        assert buffer.stats()["max_priority"] == max(step[-1] for step in told.values())


def test_a_part_alone_says_what_it_leaves_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    on_ranks(2, lambda group: begun(group, "fifo").buffer.save(tmp_path / "replay"))
    part = tmp_path / "replay" / "rank-00000-of-00002"
    assert (part / "MANIFEST").read_text().startswith("gear-checkpoint 2\n")
    gear.ReplayBuffer.load(part).close()
    assert "is one rank's part of a checkpoint: the 6 priorities" in caplog.text


def test_it_gets_its_name_when_all_have_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_is_done, named = threading.Event(), []
    save = _core.Peers.save

    def second_is_late(peers: _core.Peers, folder: str) -> None:
        if os.path.basename(folder) == "rank-00001-of-00002":
            assert first_is_done.wait(60)
            time.sleep(0.3)
            named.append((tmp_path / "replay").exists())
        save(peers, folder)
        first_is_done.set()

    monkeypatch.setattr(_core.Peers, "save", second_is_late)
    on_ranks(2, lambda group: begun(group, "fifo").buffer.save(tmp_path / "replay"))
    assert named == [False]
    assert (tmp_path / "replay" / "rank-00001-of-00002").is_dir()
