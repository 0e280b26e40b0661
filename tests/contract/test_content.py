"""Whatever writers do, a buffer holds and delivers exactly what the reference says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from script import Outputs, Player, Script, check_content, check_windows, scripts

import gear


@settings(max_examples=120)
@given(script=scripts())
def test_writing_and_evicting(tier, script: Script) -> None:
    with tier.buffer(script.schema(), script.capacity, **script.arguments()) as buffer:
        player = Player(script, buffer, script.model())
        for number, call in enumerate(script.calls, 1):
            player.play((call,))
            if number % 4 == 0 or number == len(script.calls):
                check_content(player)


@st.composite
def windows(draw: st.DrawFn, script: Script) -> Outputs:
    """From far before the episode to far behind it; often one window over several columns, or over
    what is derived of the steps."""
    reach = script.capacity
    outputs: Outputs = {}
    window = (0, 1, "both")
    for i in range(draw(st.integers(1, 6))):
        if i == 0 or draw(st.booleans()):
            start = draw(st.integers(-reach - 3, reach))
            stop = max(start + draw(st.integers(1, 2 * reach + 4)), -reach)
            window = (start, stop, draw(st.sampled_from(["both", "head", "tail", "no time axis"])))
        start, stop, pad = window
        column = draw(st.sampled_from(script.columns)).name
        if pad == "no time axis":
            outputs[f"out{i}"] = gear.Step(max(start, -reach - 1), column)
        else:
            outputs[f"out{i}"] = gear.Window(start, stop, column, pad)
        if i > 0 and draw(st.booleans()):
            kind = draw(st.sampled_from([gear.Terminated, gear.IsLast, gear.StepIndex]))
            outputs[f"out{i}"] = kind(replace(outputs[f"out{i}"], column=None))
    return outputs


@settings(max_examples=120)
@given(data=st.data(), script=scripts(max_calls=8), packed=st.booleans())
def test_windows(tier, data: st.DataObject, script: Script, packed: bool) -> None:
    with tier.buffer(script.schema(), script.capacity, **script.arguments()) as buffer:
        player = Player(script, buffer, script.model())
        player.play(script.calls)
        steps = player.model.steps()
        if not steps:
            return
        picks = data.draw(st.lists(st.integers(0, len(steps) - 1), min_size=1, max_size=20))
        outputs = data.draw(windows(script))
        check_windows(player, [steps[i] for i in picks], outputs, packed)


def test_episode_ids_name_the_first_stored_step(tier) -> None:
    schema = gear.Schema([gear.Column("x", (), "int32")])
    with tier.buffer(schema, 16, page_steps=4) as buffer:
        with buffer.writer() as writer:
            writer.extend(x=np.arange(15, dtype=np.int32))
        with buffer.writer() as writer:
            writer.extend(x=np.arange(100, 103, dtype=np.int32))
        heads = np.array([e.ids[0] | 1 << 62 for e in buffer.episodes()])
        batch = buffer.collect(heads, {"x": gear.Window(-1, 2)}, framework="numpy")
        assert batch["x"].tolist() == [[0, 4, 5], [0, 100, 101]]
        assert np.array_equal(batch.ids, heads)


def test_sequences_of_a_thousand_steps(tier) -> None:
    schema = gear.Schema([gear.Column("x", (), "int32")])
    with tier.buffer(schema, 4096, page_steps=16) as buffer:
        for first in (0, 10_000):
            with buffer.writer() as writer:
                writer.extend(x=np.arange(first, first + 1500, dtype=np.int32))
        ids = buffer.episodes()[1].ids[::50]
        batch = buffer.collect(ids, {"x": gear.Window(-499, 501)}, framework="numpy")
        expected = np.arange(-499, 501) + np.arange(0, 1500, 50)[:, None]
        there = (expected >= 0) & (expected < 1500)
        assert np.array_equal(batch.masks["x"], there)
        assert np.array_equal(batch["x"], np.where(there, expected + 10_000, 0))
