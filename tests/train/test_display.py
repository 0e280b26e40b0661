"""The bar on a terminal and the lines elsewhere."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from gear.train.loop import Learner
from gear.train.record.display import Display


@pytest.mark.parametrize("terminal", [True, False])
def test_display_shows_return_loss_and_rates(configure, terminal, tmp_path, monkeypatch):
    monkeypatch.setattr("gear.train.record.display.LINE_INTERVAL_S", 1e9)  # the forced one alone
    monkeypatch.setenv("TERM", "xterm")  # one with colours, wherever this runs
    monkeypatch.delenv("NO_COLOR", raising=False)
    learner = Learner(configure("total_steps=300"))
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80)
    with Display(console, "SAC on Pendulum-v1", 300) as display:
        display.note("writing to somewhere")
        display.log_to(tmp_path / "train.log")
        for _ in range(250):
            learner.step()
            display.update(learner)
        display.loss(0.25)
        display.evaluation(-123.4)
        display.log("for the file")
        display.update(learner, force=True)
    shown = out.getvalue()
    words = ["writing to somewhere", "return -", "loss 0.25", "env steps/s", "samples/s"]
    words += ["replay 0%", "250/300"]
    for word in words:
        assert word in shown
    assert ("\x1b[" in shown) == terminal
    assert "for the file" not in shown
    # The file has the lines, without the bar and its colours, whatever the screen is.
    logged = (tmp_path / "train.log").read_text().splitlines()
    assert "\x1b" not in "".join(logged)
    starts = ("writing to somewhere", "for the file", "step 250/300  return")
    for line, words in zip(logged, starts, strict=True):
        assert re.fullmatch(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d {words}.*", line)
    assert "evaluation -123.4" in logged[-1]


def test_an_error_is_the_last_line_of_the_log(tmp_path):
    console = Console(file=io.StringIO())

    def fail():
        with Display(console, "SAC", 10) as display:
            display.log_to(tmp_path / "train.log")
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        fail()
    assert (tmp_path / "train.log").read_text().endswith(" ended by OSError: no space left\n")


def test_other_ranks_show_and_write_nothing(capsys):
    with Display(Console(quiet=True), "SAC", 10) as display:
        display.note("not mine to say")
        display.show("a table")
    assert capsys.readouterr() == ("", "")
