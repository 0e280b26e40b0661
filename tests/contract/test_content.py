"""Whatever writers do, a buffer holds and delivers exactly what the reference says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from script import Player, Script, check_content, check_windows, scripts

import gear


@settings(max_examples=150)
@given(script=scripts())
def test_writing_and_evicting(tier, script: Script) -> None:
    with tier.buffer(script.schema(), script.capacity, **script.arguments()) as buffer:
        player = Player(script, buffer, script.model())
        for call in script.calls:
            player.play((call,))
            check_content(player)


@st.composite
def windows(draw: st.DrawFn, script: Script) -> dict[str, gear.Window]:
    """Several over the same columns, from far before the episode to far behind it."""
    reach = script.capacity
    outputs = {}
    for i in range(draw(st.integers(1, 4))):
        start = draw(st.integers(-reach - 3, reach))
        stop = start + draw(st.integers(1, 2 * reach + 4))
        if stop < -reach:
            stop = -reach
        column = draw(st.sampled_from(script.columns)).name
        pad = draw(st.sampled_from(["both", "head", "tail"]))
        outputs[f"out{i}"] = gear.Window(start, stop, column, pad)
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
