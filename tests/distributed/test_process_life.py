"""What is closed when a process ends, and what a signal does to it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from gear import _core
from gear.distributed import process_life

# Whether libfabric is found or not: its own handlers are set while it is loaded.
LOADED = """
import os, signal, sys
from gear import _core
from gear.errors import TransportError
if sys.argv[1] == "own":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
try:
    print(_core.fabric_port(), file=sys.stderr)
except TransportError as error:
    print(error, file=sys.stderr)
handled = int(next(line for line in open("/proc/self/status") if "SigCgt" in line).split()[1], 16)
print([one.name for one in signal.Signals if handled >> (one - 1) & 1])
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGTERM)
signal.pause()
"""


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


@pytest.mark.parametrize("raised", [KeyboardInterrupt, ValueError])
def test_what_ends_one_of_the_last_words_and_calls_leaves_out_none_of_the_others(
    raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []

    class Interrupted:
        def say_ended(self, error: BaseException) -> None:
            done.append(f"said {error}")
            raise raised

        def close(self) -> None:
            done.append("closed")
            raise raised

        def __call__(self) -> None:
            done.append("called")
            raise raised

    things = [Interrupted(), Interrupted()]
    monkeypatch.setattr(process_life, "speakers", things)
    monkeypatch.setattr(process_life, "closed_at_exit", things)
    monkeypatch.setattr(process_life, "last", things)
    monkeypatch.setattr(sys, "last_exc", None, raising=False)
    monkeypatch.setattr(sys, "last_value", ValueError("why"), raising=False)
    process_life.end()
    assert done == ["said why", "said why", "closed", "closed", "called", "called"]


@pytest.mark.skipif(not _core.build_info()["fabric"], reason="GEAR was built without libfabric")
@pytest.mark.parametrize(
    ("handler", "handled", "code"),
    [("none", ["SIGINT"], -signal.SIGTERM), ("own", ["SIGINT", "SIGTERM"], 5)],
)
def test_signals_are_the_programs_after_libfabric_was_loaded(
    handler: str, handled: list[str], code: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, handler],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.returncode) == (f"{handled}\n", code), done.stderr
