"""The bar on a terminal and the lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gear.train.display import Display
from gear.train.loop import Learner


@pytest.mark.parametrize("terminal", [True, False])
def test_display_shows_return_loss_and_rates(configure, terminal):
    learner = Learner(configure("total_steps=300"))
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80)
    with Display(console, "SAC on Pendulum-v1", 300) as display:
        display.note("writing to somewhere")
        for _ in range(250):
            learner.step()
            display.update(learner)
        display.loss(0.25)
        display.update(learner, force=True)
    shown = out.getvalue()
    words = ["writing to somewhere", "return -", "loss 0.25", "env steps/s", "samples/s"]
    words += ["replay 0%", "250/300"]
    for word in words:
        assert word in shown
    assert ("\x1b[" in shown) == terminal
