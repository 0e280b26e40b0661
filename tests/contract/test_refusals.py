"""Bad input: refused with a message that names what was given and what is allowed, nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from filled import GOOD, ROWS, SCHEMA, Filled

import gear

NAN, INF = float("nan"), float("inf")


def f32(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


APPENDS: list[tuple[Callable[[gear.Writer], Any], str]] = [
    (lambda w: w.append(**{**GOOD, "obs": f32(4)}), r"'obs'.*\(3\).*\(4\)"),
    (lambda w: w.append(**{**GOOD, "obs": f32(1, 3)}), r"'obs'.*\(3\).*\(1, 3\)"),
    (lambda w: w.append(**{**GOOD, "obs": np.float32(1)}), r"'obs'.*\(3\).*\(\)"),
    (lambda w: w.append(**{**GOOD, "obs": np.full(3, 1e300)}), r"'obs'.*1e\+300.*infinite"),
    (lambda w: w.append(**{**GOOD, "obs": np.zeros(3, np.int32)}), r"'obs'.*float32.*int32"),
    (lambda w: w.append(**{**GOOD, "obs": [1.0, 2.0, 3.0]}), r"'obs'.*\(3\).*list.*array"),
    (lambda w: w.append(**{**GOOD, "obs": "three"}), r"'obs'.*float32"),
    (lambda w: w.append(**{**GOOD, "obs": None}), r"'obs'.*float32"),
    (lambda w: w.append(**{**GOOD, "action": 1.5}), r"'action'.*int64.*(float|1\.5)"),
    (lambda w: w.append(**{**GOOD, "action": 1 << 63}), r"'action'.*int64"),
    (lambda w: w.append(**{**GOOD, "action": [1]}), r"'action'.*int64.*list"),
    (lambda w: w.append(**{**GOOD, "action": np.int32(1)[None]}), r"'action'.*int64.*int32"),
    (lambda w: w.append(**GOOD, reward=1.0), r"'?reward'?.*obs.*action"),
    (lambda w: w.append(obs=GOOD["obs"]), r"action"),
    (lambda w: w.append(), r"obs"),
    (lambda w: w.append(**GOOD, priority=NAN), r"priority.*nan.*finite"),
    (lambda w: w.append(**GOOD, priority=-0.5), r"priority.*-0\.5"),
    (lambda w: w.append(**GOOD, priority=INF), r"priority.*inf"),
    (lambda w: w.append(**GOOD, priority=1e300), r"priority.*(1e\+300|inf)"),
    (lambda w: w.append(**GOOD, priority="0.5"), r"priority 0\.5.*number"),
    (lambda w: w.append(**GOOD, priority=[1.0, 2.0]), r"priority \[1\.0, 2\.0\].*number"),
    (lambda w: w.extend(**{**ROWS, "action": np.arange(3)}), r"'?action'?.*3.*|4.*"),
    (lambda w: w.extend(**{**ROWS, "obs": f32(4, 2)}), r"'obs'.*\(steps, 3\).*\(4, 2\)"),
    (lambda w: w.extend(**{**ROWS, "obs": f32(3)}), r"'obs'.*\(steps, 3\).*\(3\)"),
    (lambda w: w.extend(**ROWS, priority=[1.0, 1.0, NAN, 1.0]), r"priority.*nan"),
    (lambda w: w.extend(**ROWS, priority=[1.0, -1.0, 1.0, 1.0]), r"priority.*-1"),
    (lambda w: w.extend(**ROWS, priority=np.ones(3)), r"priorit.*(3.*4|4.*3)"),
    (lambda w: w.extend(obs=ROWS["obs"]), r"action"),
    (lambda w: w.end_episode(final={"reward": 1.0}), r"'?reward'?.*obs.*action"),
    (lambda w: w.end_episode(final={"obs": f32(2)}), r"'obs'.*\(3\).*\(2\)"),
    (lambda w: w.end_episode(weight=NAN), r"weight.*nan"),
    (lambda w: w.end_episode(weight=-1.0), r"weight.*-1"),
    (lambda w: w.end_episode(weight=INF), r"weight.*inf"),
    (lambda w: w.end_episode(weight="0.5"), r"weight '0\.5'.*number"),
    (lambda w: w.end_episode(terminated="False"), r"terminated 'False'.*True and False"),
    (lambda w: w.end_episode(terminated=0), r"terminated 0.*True and False"),
    (lambda w: w.end_episode(terminated=None), r"terminated None.*True and False"),
    (lambda w: w.end_episode(final=[f32(3)]), r"final \[.*dict"),
    (lambda w: w.end_episode(final={"obs": np.full(3, -1e39)}), r"'obs'.*-1e\+39.*infinite"),
]


@pytest.mark.parametrize(("call", "message"), APPENDS, ids=range(len(APPENDS)))
def test_writer_refuses(filled: Filled, call: Callable[[gear.Writer], Any], message: str) -> None:
    episode = filled.writer.episode
    with pytest.raises(gear.InvalidArgument, match=rf"(?s)^\[\w+\] .*{message}"):
        call(filled.writer)
    assert filled.writer.episode == episode
    filled.check_nothing_changed()


def test_append_after_close(filled: Filled) -> None:
    other = filled.buffer.writer()
    other.close()
    other.close()
    for call in (
        lambda: other.append(**GOOD),
        lambda: other.extend(**ROWS),
        lambda: other.end_episode(),
    ):
        with pytest.raises(gear.InvalidArgument, match="closed"):
            call()
    filled.check_nothing_changed()


def test_a_writer_left_by_an_exception_warns_of_its_half_episode(
    filled: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*, ended: bool) -> None:
        with filled.buffer.writer() as writer:
            writer.extend(**ROWS)
            if ended:
                writer.end_episode(terminated=True)
            raise KeyError("the environment failed")

    with pytest.raises(KeyError):
        fail(ended=True)
    assert not caplog.records
    with pytest.raises(KeyError):
        fail(ended=False)
    last = filled.buffer.episodes()[-1]
    assert last.state == "truncated"
    assert [record.message for record in caplog.records] == [
        f"[writer] episode {last.uid} was open when KeyError left its writer: the writer "
        "ended it as truncated, without a closing step"
    ]


@pytest.mark.parametrize("leave", [gear.Writer.close, lambda writer: writer.__exit__(None)])
def test_a_writer_left_amid_an_episode_warns_of_it(
    filled: Filled, leave: Callable[[gear.Writer], Any], caplog: pytest.LogCaptureFixture
) -> None:
    ended, empty = filled.buffer.writer(), filled.buffer.writer()
    ended.extend(**ROWS)
    ended.end_episode(terminated=True)
    for writer in (ended, empty):
        leave(writer)
        leave(writer)
    assert not caplog.records
    writer = filled.buffer.writer()
    writer.extend(**ROWS)
    leave(writer)
    leave(writer)
    last = filled.buffer.episodes()[-1]
    assert last.state == "truncated"
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.message.startswith(
        f"[writer] episode {last.uid} was open, with {last.end} step(s), when its writer was closed"
    )
    assert "end_episode(terminated=..., final={...})" in record.message


def test_append_after_the_episode_ended_starts_the_next(filled: Filled) -> None:
    first = filled.writer.episode
    filled.writer.end_episode(terminated=True)
    assert filled.writer.episode is None
    filled.writer.append(**GOOD)
    assert filled.writer.episode > first
    assert [e.state for e in filled.buffer.episodes()] == ["truncated", "terminated", "open"]


@pytest.mark.parametrize(
    ("episode", "message"),
    [(1, r"1 has ended"), (2, r"2 has a writer"), (77, r"no episode 77")],
)
def test_only_an_open_episode_without_writer_is_continued(filled, episode, message) -> None:
    with pytest.raises(gear.InvalidArgument, match=message):
        filled.buffer.writer(episode=episode)
    filled.check_nothing_changed()


OUTPUTS: list[tuple[Any, str]] = [
    ({"obs": gear.Window(65, 70)}, r"'obs'.*\[65, 70\).*out of reach.*64"),
    ({"obs": gear.Window(-80, -70)}, r"'obs'.*\[-80, -70\).*out of reach.*64"),
    ({"x": gear.Window(0, 1)}, r"'x'.*obs, action"),
    ({"x": gear.Step(0, "reward")}, r"'reward'.*obs, action"),
    ({}, r"output"),
    ({"obs": 3}, r"'?obs'?.*(Step|Window)"),
]
# A window may refuse by itself, before it ever meets a buffer.
WINDOWS: list[tuple[Callable[[], Any], str]] = [
    (lambda: gear.Window(3, 3), r"\[3, 3\).*empty"),
    (lambda: gear.Window(3, 1), r"\[3, 1\).*empty"),
    (lambda: gear.Window(0, 2, pad="left"), r"'left'.*'both'.*'head'.*'tail'"),
]


@pytest.mark.parametrize(("outputs", "message"), OUTPUTS)
def test_outputs_are_checked(filled: Filled, outputs: Any, message: str) -> None:
    with pytest.raises(gear.InvalidArgument, match=message):
        filled.buffer.loader(4, outputs=outputs)
    with pytest.raises(gear.InvalidArgument, match=message):
        filled.buffer.collect(filled.ids, outputs)
    filled.check_nothing_changed()


@pytest.mark.parametrize(("make", "message"), WINDOWS)
def test_windows_are_checked(filled: Filled, make: Callable[[], Any], message: str) -> None:
    with pytest.raises(gear.InvalidArgument, match=message):
        filled.buffer.loader(4, outputs={"obs": make()})
    with pytest.raises(gear.InvalidArgument, match=message):
        filled.buffer.collect(filled.ids, {"obs": make()})


LOADERS: list[tuple[dict[str, Any], str]] = [
    ({"batch_size": 0}, r"batch_size.*0.*1 or more"),
    ({"batch_size": -3}, r"batch_size.*-3"),
    ({"batch_size": 4, "prefetch": -1}, r"prefetch.*-1"),
    ({"batch_size": 4, "prefetch": 1025}, r"prefetch 1025.*0 to 1024.*memory"),
    ({"batch_size": 4, "prefetch": (1 << 63) - 1}, r"prefetch 9223372036854775807.*0 to 1024"),
    ({"batch_size": 4, "framework": "tensorflow"}, r"'tensorflow'.*numpy.*torch"),
    ({"batch_size": 4, "device": "tpu"}, r"'tpu'.*cpu"),
    ({"batch_size": 4, "sampler": "uniform"}, r"sampler.*Uniform"),
    ({"batch_size": 4, "sampler": gear.Weighted(alpha=0.5, beta=0.4)}, None),
    ({"batch_size": 4, "timeout_s": -1.0}, r"timeout_s.*-1"),
    ({"batch_size": 4, "timeout_s": NAN}, r"timeout_s.*nan"),
]
SAMPLERS: list[tuple[Callable[[], Any], str]] = [
    (lambda: gear.Uniform(unit="frame"), r"'frame'.*'step'.*'episode'"),
    (lambda: gear.Weighted(alpha=-1.0), r"alpha.*-1"),
    (lambda: gear.Weighted(alpha=NAN), r"alpha.*nan"),
    (lambda: gear.Weighted(beta=-0.1), r"beta.*-0\.1"),
    (lambda: gear.Weighted(beta=INF), r"beta.*inf"),
    (lambda: gear.Weighted(beta=5), r"beta 5: a number from 0 to 1 "),
    (lambda: gear.Weighted(beta=NAN), r"beta nan: a number from 0 to 1 "),
    (lambda: gear.Weighted(beta="x"), r"beta 'x'.*number"),
    (lambda: gear.Weighted(alpha=100), r"alpha 100: a number from 0 to 4 "),
    (lambda: gear.Weighted(alpha="x"), r"alpha 'x'.*number"),
    (lambda: gear.Weighted(normalize="all"), r"normalize 'all'.*'batch'.*'buffer'"),
]


@pytest.mark.parametrize(("arguments", "message"), LOADERS, ids=range(len(LOADERS)))
def test_loader_arguments_are_checked(filled: Filled, arguments, message) -> None:
    if message is None:
        filled.buffer.loader(**arguments).close()
    else:
        with pytest.raises(gear.InvalidArgument, match=message):
            filled.buffer.loader(**arguments)
    filled.check_nothing_changed()


@pytest.mark.parametrize(("make", "message"), SAMPLERS, ids=range(len(SAMPLERS)))
def test_sampler_arguments_are_checked(filled: Filled, make, message: str) -> None:
    with pytest.raises(gear.InvalidArgument, match=message):
        filled.buffer.loader(4, sampler=make())
    filled.check_nothing_changed()


def test_beta_is_for_weighted_only(filled: Filled) -> None:
    loader = filled.buffer.loader(4)
    with pytest.raises(gear.InvalidArgument, match=r"Weighted.*beta"):
        loader.beta = 0.5
    weighted = filled.buffer.loader(4, sampler=gear.Weighted())
    for beta in (NAN, INF, -1.0, 7, 1.0000001, "x", None):
        with pytest.raises(gear.InvalidArgument, match=rf"beta {beta!r}: a number "):
            weighted.beta = beta
        assert weighted.beta == 0.4
    weighted.beta = 1
    assert weighted.beta == 1.0


def test_no_ids_are_refused(filled: Filled) -> None:
    for ids in ([], (), np.empty(0, np.int64)):
        with pytest.raises(gear.InvalidArgument, match=r"^\[buffer\] collect: ids are empty"):
            filled.buffer.collect(ids)


def test_an_empty_buffer_has_nothing_to_draw(tier) -> None:
    with (
        tier.buffer(SCHEMA, 64) as buffer,
        buffer.loader(4) as loader,
        pytest.raises(gear.InvalidArgument, match=r"nothing.*(draw|sample)"),
    ):
        next(loader)
