"""What a full buffer keeps: the newest steps, and of every open episode its last page."""

from __future__ import annotations

import itertools
import zipfile
from pathlib import Path

import numpy as np
import pytest

import gear

SCHEMA = gear.Schema([gear.Column("x", (), "int64")])


def kept(buffer: gear.ReplayBuffer) -> np.ndarray:
    """x of all stored steps, ascending."""
    ids = [id_ for episode in buffer.episodes() for id_ in episode.ids]
    return np.sort(buffer.collect(np.array(ids, np.int64), framework="numpy")["x"])


@pytest.mark.parametrize("num_writers", [1, 7, 64])
@pytest.mark.parametrize("page_steps", [1, 4, 64])
def test_fifo_keeps_the_newest_pages_whatever_the_lengths(
    tier, num_writers: int, page_steps: int
) -> None:
    """Episodes of 1 to 10,000 steps side by side; a step is its number in order of arrival. What is
    stored are the pages that a slow list keeps: the newest ones, but for last pages of open
    episodes."""
    rng = np.random.default_rng(num_writers + page_steps)
    num_pages = 3 * num_writers + 16
    with tier.buffer(SCHEMA, num_pages * page_steps, page_steps=page_steps) as buffer:
        writers = [buffer.writer() for _ in range(num_writers)]
        left = [0] * num_writers  # steps of the open episode that are still to come
        num_begun = 0
        pages: dict[int, list[int]] = {}  # the steps of each, in the order in which they were begun
        last: list[int | None] = [None] * num_writers  # the page into which each writes
        now = 0
        for turn in range(3000):
            w = int(rng.integers(num_writers))
            if left[w] == 0:
                left[w] = int(10 ** rng.uniform(0, 4))
            count = min(left[w], int(rng.integers(1, 12)))
            writers[w].extend(x=np.arange(now, now + count))
            for step in range(now, now + count):
                page = last[w]
                if page is None or len(pages[page]) == page_steps:
                    if len(pages) == num_pages:
                        of_others = {of for v, of in enumerate(last) if v != w}
                        del pages[next(oldest for oldest in pages if oldest not in of_others)]
                    last[w] = page = num_begun
                    pages[page] = []
                    num_begun += 1
                pages[page].append(step)
            now += count
            left[w] -= count
            if left[w] == 0:
                writers[w].end_episode(terminated=True)
                last[w] = None
            if turn % 100 == 99:
                assert kept(buffer).tolist() == sorted(itertools.chain(*pages.values()))
                newest = num_begun - (num_pages - num_writers)
                assert all(page in pages for page in range(max(newest, 0), num_begun))
                assert sum(page < newest for page in pages) <= num_writers
        assert num_begun > num_pages + num_writers
        for writer in writers:
            writer.end_episode(terminated=True)


def test_writers_side_by_side_have_equal_shares(tier) -> None:
    """16 of them, episodes of 1000 steps, room for 4096."""
    with tier.buffer(SCHEMA, 4096, page_steps=16) as buffer:
        writers = [buffer.writer() for _ in range(16)]
        for step in range(1, 3500):
            for w, writer in enumerate(writers):
                writer.append(x=w)
                if (step + 61 * w) % 1000 == 0:
                    writer.end_episode(terminated=True)
            if step % 500 == 499:
                shares = np.bincount(kept(buffer), minlength=16) / len(buffer)
                assert shares.min() > 0.9 / 16
                assert shares.max() < 1.1 / 16
        for writer in writers:
            writer.end_episode(terminated=True)


def test_a_full_last_page_of_an_open_episode_is_its_writers(tier) -> None:
    with tier.buffer(SCHEMA, 2, page_steps=2) as buffer:
        a, b = buffer.writer(), buffer.writer()
        a.extend(x=np.array([1, 2]))
        with pytest.raises(gear.OutOfMemory, match="the last one of an open episode"):
            b.append(x=3)
        assert b.episode is None
        a.end_episode(terminated=True)
        assert kept(buffer).tolist() == [1, 2]
        b.append(x=3)
        b.end_episode(terminated=True)
        assert kept(buffer).tolist() == [3]


def test_an_epoch_in_order_goes_past_a_writer_that_got_no_page(tier) -> None:
    with tier.buffer(SCHEMA, 4, page_steps=2) as buffer:
        a, c, without, d = (buffer.writer() for _ in range(4))
        a.append(x=1)
        c.append(x=2)
        with pytest.raises(gear.OutOfMemory):
            without.append(x=3)
        for writer in (a, c):
            writer.end_episode(terminated=True)
        d.append(x=4)
        d.end_episode(terminated=True)
        sampler = gear.Sequential(unit="episode", shuffle=False)
        with buffer.loader(1, sampler=sampler, prefetch=0, framework="numpy") as loader:
            delivered = [next(loader)["x"].item()]
            without.close()
            delivered += [batch["x"].item() for batch in loader]
        assert delivered == [2, 4]


def test_an_open_episode_without_a_page_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The checkpoint, of GEAR of November 2026, has two open episodes of a step each, and one
    without any, which its writer had begun when there was no page for it."""
    with zipfile.ZipFile(Path(__file__).with_name("empty_episode.zip")) as archive:
        archive.extractall(tmp_path)
    with gear.ReplayBuffer.load(tmp_path) as buffer:
        assert "open episodes of which no step is kept: 1; they are left out" in caplog.text
        assert [episode.uid for episode in buffer.episodes()] == [1, 2]
        with buffer.writer(episode=1) as writer:
            writer.append(x=5)
            writer.end_episode(terminated=True)
        assert kept(buffer).tolist() == [1, 2, 5]


@pytest.mark.parametrize("length", [1, 10])
def test_a_small_buffer_of_many_environments_keeps_its_capacity(tier, length: int) -> None:
    """256 of them in room for 2048 steps, by the pages that GEAR chooses."""
    with tier.buffer(SCHEMA, 2048) as buffer:
        writer = buffer.writer(256, autoreset="same_step")
        rng = np.random.default_rng(length)
        for _ in range(30 * length):
            writer.append(x=np.arange(256), terminated=rng.random(256) < 1 / length)
        assert len(buffer) >= 2048 - 256
        writer.end_episode()


def test_short_episodes_in_long_pages_are_warned_of_once(
    tier, caplog: pytest.LogCaptureFixture
) -> None:
    with tier.buffer(SCHEMA, 1024, page_steps=64) as buffer:
        writer = buffer.writer(4, autoreset="same_step")
        for _ in range(30):
            writer.append(x=np.arange(4), terminated=np.ones(4, bool))
        told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert "16 of 1024 steps are stored" in told[0]
    assert "of 1 steps each or so, leave most of a page of 64 empty" in told[0]
    assert told[0].endswith("give the buffer page_steps=1")


def test_of_long_episodes_nothing_is_said(tier, caplog: pytest.LogCaptureFixture) -> None:
    with tier.buffer(SCHEMA, 1024, page_steps=64) as buffer, buffer.writer() as writer:
        for _ in range(60):
            writer.extend(x=np.arange(100))
            writer.end_episode(terminated=True)
    assert not caplog.records
