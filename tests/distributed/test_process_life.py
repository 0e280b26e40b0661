"""What is closed when a process ends."""

from __future__ import annotations

import pytest

from gear.distributed import process_life


def test_ctrl_c_in_one_closing_leaves_none_of_the_others_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = []

    class Interrupted:
        def close(self) -> None:
            closed.append(self)
            raise KeyboardInterrupt

    things = [Interrupted(), Interrupted()]
    monkeypatch.setattr(process_life, "closed_at_exit", things)
    monkeypatch.setattr(process_life, "last", [lambda: closed.append(None)])
    process_life.end()
    assert closed == [*things, None]
