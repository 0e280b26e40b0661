"""Ranks of a framework, and what they hear of each other while GEAR connects them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

import gear
from gear.distributed.calls import Late
from gear.distributed.channels import framework
from gear.distributed.channels.framework import FrameworkRanks
from gear.distributed.member import Member
from gear.distributed.timeout import Limit

torch = pytest.importorskip("torch")
SIZE = 3


class Threads(FrameworkRanks):
    """Whose framework is a barrier between threads."""

    name = "the threads"

    def __init__(self, rank: int, barrier: threading.Barrier, given: list[bytes]) -> None:
        super().__init__(rank, SIZE, 20.0)
        self._barrier = barrier
        self._given = given

    def _gather(self, text: bytes, limit: Limit) -> list[bytes]:
        self._given[self.rank] = text
        try:
            self._barrier.wait(limit.left())
            told = list(self._given)
            self._barrier.wait(limit.left())
        except threading.BrokenBarrierError:
            raise Late("") from None
        return told


def errors_of(call: Callable[[Threads], Any]) -> list[BaseException | None]:
    barrier, given = threading.Barrier(SIZE), [b""] * SIZE
    with ThreadPoolExecutor(SIZE) as pool:
        futures = [pool.submit(call, Threads(rank, barrier, given)) for rank in range(SIZE)]
        return [future.exception() for future in futures]


def by_gloo(ranks: Threads) -> Any:
    return ranks.by_gloo(Limit.of(4))


def failing(error: BaseException) -> Callable[..., Any]:
    def step(*_: Any, **__: Any) -> Any:
        raise error

    return step


def test_all_hear_that_rank_0_cannot_serve_their_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """In its words: none has waited for it in vain."""
    monkeypatch.setattr(torch.distributed, "TCPStore", failing(RuntimeError("no such host\nat")))
    errors = errors_of(by_gloo)
    assert {type(error) for error in errors} == {gear.TransportError}
    assert {str(error) for error in errors} == {
        "[transport] rank 0 could not serve the ranks' meeting point at its host: no such host"
    }


def test_without_torch_all_are_told_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    monkeypatch.setattr(framework, "find_spec", lambda _: None, raising=False)
    errors = errors_of(by_gloo)
    assert {type(error) for error in errors} == {gear.InvalidArgument}
    assert {str(error) for error in errors} == {
        "[group] transport 'group' is torch's gloo: install torch, or use 'auto'; ranks 0, 1 and 2 "
        "have none"
    }


def test_a_torch_that_cannot_be_imported_on_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    errors = errors_of(by_gloo)
    assert {type(error) for error in errors} == {gear.TransportError}
    (said,) = {str(error) for error in errors}
    assert re.match(r"\[transport\] rank 0 could not serve .*: import of torch.distributed", said)


@pytest.mark.parametrize(
    ("late", "said"),
    [
        ("node 7 does not answer", "node 7 does not answer"),
        ("", "not all ranks of the threads came"),
    ],
)
def test_a_wait_says_how_long_it_was(late: str, said: str) -> None:
    ranks = Threads(1, threading.Barrier(1), [])
    with pytest.raises(gear.TransportError) as caught:
        ranks.guarded(failing(Late(late)), Limit.of(7))
    assert str(caught.value).startswith(f"[transport] {said} within 7 s: all ranks make this group")


class Answered(Threads):
    """Rank `rank`, whose others have answered already; rank 1's process has ended."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank, threading.Barrier(1), [])
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        here = Member.here(0)
        self.members = (here, replace(here, rank=1, pid=gone.pid), replace(here, rank=2))

    def _gather(self, text: bytes, limit: Limit) -> list[bytes]:
        told = [json.dumps([True, ["localhost", 1], ""]).encode()] * SIZE
        told[self.rank] = text
        return told


@pytest.mark.parametrize("rank", [0, 2])
def test_a_wait_for_the_store_ends_with_a_rank(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    """So does Ctrl-C end it: the store is opened by another thread than the one that waits."""
    release, openers = threading.Event(), []

    def open_store(*_: Any, **__: Any) -> Any:
        openers.append(threading.current_thread())
        release.wait()  # without an end: a wait for this alone would never come back
        raise RuntimeError("time is up")

    monkeypatch.setattr(torch.distributed, "TCPStore", open_store)
    with pytest.raises(gear.TransportError, match=r"rank 1 \(pid \d+ on \S+\) has ended"):
        Answered(rank).by_gloo(Limit.of(200))
    release.set()
    assert openers != [threading.current_thread()]


@pytest.mark.parametrize(
    "error",
    [
        gear.OutOfMemory("[memory] none is left"),
        gear.InvalidArgument("[x] y"),
        OSError(24, "files"),
        ImportError("libtorch.so: cannot open shared object file"),
    ],
)
def test_what_one_rank_lacks_is_told_and_stays_what_it_is(error: Exception) -> None:
    ranks = Threads(1, threading.Barrier(1), [])
    with pytest.raises(type(error)) as caught:
        ranks.guarded(failing(error), Limit.of(5))
    assert caught.value is error
    assert ranks.failure.text.startswith("[transport] rank 1 failed in Group with ")
    assert str(error) in ranks.failure.text
