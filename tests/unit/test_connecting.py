"""What ranks that meet at a store say of each other when they cannot be connected."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import gear
from gear.distributed.calls import Late
from gear.distributed.channels import connect, gloo, store_ranks
from gear.distributed.channels.base import Alone
from gear.distributed.channels.gloo import GlooChannel
from gear.distributed.member import Member
from gear.distributed.timeout import Limit

FIND_OUT_S = 0.2  # for waits in vain, which would take seconds


class Store:
    """Keeps texts, as torch's does, until it is gone, or silent."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.gone = False
        self.silent = threading.Event()

    def _answer(self) -> None:
        if self.gone:
            raise RuntimeError("Connection reset by peer")
        if self.silent.is_set():
            time.sleep(4 * FIND_OUT_S)

    def set(self, key: str, text: str) -> None:
        self._answer()
        self.kept[key] = text

    def get(self, key: str) -> bytes:
        self._answer()
        return str(self.kept[key]).encode()

    def check(self, keys: list[str]) -> bool:
        self._answer()
        return all(key in self.kept for key in keys)

    def add(self, key: str, more: int) -> int:
        self._answer()
        self.kept[key] = self.kept.get(key, 0) + more
        return int(self.kept[key])

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        self._answer()
        if self.kept.get(key, "") == expected:
            self.kept[key] = desired
        return str(self.kept[key]).encode()


@pytest.fixture
def stays(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What this process would do at its end, for the others to hear; here it is left."""
    left: list[Callable[[], None]] = []
    monkeypatch.setattr(store_ranks, "last", left)
    return left


@pytest.fixture
def ranks(stays: list[Callable[[], None]]) -> GlooChannel:
    """Rank 1 of 3, which have met; rank 0 serves the store."""
    one = GlooChannel(Store(), 1, 3, 5.0, server=0)
    one.members = tuple(Member.here(rank) for rank in range(3))
    return one


@pytest.fixture
def hurried(ranks: GlooChannel, monkeypatch: pytest.MonkeyPatch) -> GlooChannel:
    """They give up what does not connect soon, and go by the roll as it stands then."""
    monkeypatch.setattr(connect, "STORE_WAIT_S", FIND_OUT_S)
    monkeypatch.setattr(ranks, "answered", lambda _: ranks.roll(0.0))
    return ranks


def failing(error: BaseException) -> Callable[[], Any]:
    def step() -> Any:
        raise error

    return step


def said(ranks: GlooChannel) -> Any:
    return json.loads(ranks._store.kept["failed"])


@pytest.mark.parametrize("error", [RuntimeError("no route"), Late("no route")])
def test_who_gives_up_tells_the_others(ranks: GlooChannel, error: Exception) -> None:
    with pytest.raises(gear.TransportError) as caught:
        ranks.guarded(failing(error), Limit.of(5))
    assert str(caught.value) == said(ranks)["text"] == ranks.failed
    assert str(caught.value).startswith(
        f"[transport] {ranks.members[1]} could not connect to the other 2 ranks: no route; "
    )


def test_what_another_rank_told_is_the_cause(ranks: GlooChannel) -> None:
    ranks._store.kept["failed"] = json.dumps({"text": "[transport] rank 2 has no memory"})
    with pytest.raises(gear.TransportError, match=r"^\[transport\] rank 2 has no memory$"):
        ranks.guarded(failing(RuntimeError("Connection closed by peer")), Limit.of(5))


def test_a_store_that_is_gone_has_ended_with_its_rank(ranks: GlooChannel) -> None:
    ranks._store.gone = True
    with pytest.raises(gear.TransportError) as caught:
        ranks.guarded(failing(RuntimeError("Connection reset by peer")), Limit.of(5))
    assert str(caught.value).startswith(f"[transport] {ranks.members[0]} has ended: ")


def test_a_silent_store_has_not_ended(ranks: GlooChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_ranks, "STORE_WAIT_S", FIND_OUT_S)
    ranks._store.silent.set()
    with pytest.raises(gear.TransportError) as caught:
        ranks.guarded(failing(Late("a rank does not answer")), Limit.of(0))
    ranks._store.silent.clear()
    assert str(caught.value).startswith(
        f"[transport] {ranks.members[0]} did not take part within 0 s: "
    )


@pytest.mark.parametrize(
    "error",
    [
        gear.OutOfMemory("[memory] none is left"),
        gear.InvalidArgument("[transport] no such device"),
        gear.IoError(28, "[io] no space"),
        OSError(24, "too many open files"),
        ImportError("libtorch.so: cannot open shared object file"),
    ],
)
def test_what_one_rank_lacks_is_told_and_stays_what_it_is(
    ranks: GlooChannel, error: Exception
) -> None:
    with pytest.raises(type(error)) as caught:
        ranks.guarded(failing(error), Limit.of(5))
    assert caught.value is error
    told = said(ranks)["text"]
    assert told.startswith(f"[transport] {ranks.members[1]} failed in Group with ")
    assert str(error) in told


def not_joined(ranks: GlooChannel) -> str:
    """What a rank says that does not come to the end of joining."""
    release = threading.Event()
    with pytest.raises(gear.TransportError) as caught:
        connect._joined(ranks, Limit.of(0.1), lambda: release.wait(20))  # type: ignore[arg-type, return-value]
    release.set()
    return str(caught.value)


def test_who_does_not_join_is_named_by_a_roll_call(hurried: GlooChannel) -> None:
    store = hurried._store
    store.set("call 1 0", "here")
    store.add("call 1", 1)
    assert not_joined(hurried).startswith(
        f"[transport] {hurried.members[2]} did not take part within 0.1 s: "
    )
    assert "roll call" in store.kept, "those that still connect do not hear of it"
    assert said(hurried)["absence"][1] == [2]


def test_who_has_joined_already_hears_no_roll_call_and_is_not_named(hurried: GlooChannel) -> None:
    other = GlooChannel(hurried._store, 0, 3, 5.0, server=0)
    other.members = hurried.members
    failures = [gear._core.Failure() for _ in range(3)]
    transport = gear._core.loopback_transports(3, 5.0, failures)[0]
    connect._joined(other, Limit.of(5), lambda: transport)
    assert not_joined(hurried).startswith(
        f"[transport] {hurried.members[2]} did not take part within 0.1 s: "
    )
    assert said(hurried)["absence"][1] == [2]


def test_who_could_not_join_all_that_have_says_so(
    hurried: GlooChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gloo, "find_spec", lambda _: True)
    for rank in (0, 2):
        other = GlooChannel(hurried._store, rank, 3, 5.0, server=0)
        monkeypatch.setattr(other, "_connected", lambda _: None)
        other.by_gloo(Limit.of(5))
    assert not_joined(hurried).startswith(
        f"[transport] {hurried.members[1]} could not connect to the other 2 ranks: "
        "a rank does not answer; "
    )
    assert "text" in said(hurried)


def test_a_rank_in_the_roll_call_of_another_is_not_named(ranks: GlooChannel) -> None:
    """It ends its own wait, answers, and says who is silent."""
    store = ranks._store
    store.set("roll call", "here")
    for rank in (0, 2):
        store.set(f"call 1 {rank}", "here")
        store.add("call 1", 1)
    release = threading.Event()
    with pytest.raises(gear.TransportError, match="another rank could not connect to all"):
        connect._joined(ranks, Limit.of(20), lambda: release.wait(20))  # type: ignore[arg-type, return-value]
    release.set()
    assert "call 1 1" in store.kept


def test_the_server_of_a_refusal_stays_until_all_have_heard_it(
    stays: list[Callable[[], None]],
) -> None:
    ranks = GlooChannel(Store(), 0, 2, 5.0, server=0)
    with pytest.raises(gear.IoError), ranks.refusing():
        raise gear.IoError(28, "[io] no space")
    assert len(stays) == 1


def test_who_told_all_and_then_ended_has_been_heard(
    ranks: GlooChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses what all told, before this rank has read that all have."""
    part = Store()
    monkeypatch.setattr(store_ranks, "part_of", lambda _store, _what: part)
    monkeypatch.setattr(ranks, "ended", lambda _: {0, 2})
    for rank in (0, 2):
        part.set(f"rank {rank}", str(rank))
        part.add("came", 1)
    assert ranks.tell_all("1", "carriers", Limit.of(5)) == [0, 1, 2]


# ---- what rank 0 makes for all ----


class Told:
    """Ranks that have met, whose words are kept."""

    def __init__(self, rank: int, first: Any = None) -> None:
        self.rank, self.size, self.timeout_s = rank, 2, 5.0
        self.first = first

    def tell_all(self, text: str, what: str, meeting: Limit) -> list[Any]:
        self.first = json.loads(text) if self.rank == 0 else self.first
        return [self.first, json.loads(text)]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(24, "too many open files"), gear.IoError),
        (gear.OutOfMemory("[memory] none is left"), gear.OutOfMemory),
        (gear.InvalidArgument("[memory] no such prefix"), gear.InvalidArgument),
    ],
)
def test_all_ranks_hear_why_there_is_no_memory_for_them(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception]
) -> None:
    monkeypatch.setattr(gear._core, "SharedRoom", lambda *_: failing(error)())
    first = Told(0)
    with pytest.raises(kind):
        connect._by_memory(first, Limit.of(5))  # type: ignore[arg-type]
    with pytest.raises(kind, match="on rank 0: ") as caught:
        connect._by_memory(Told(1, first.first), Limit.of(5))  # type: ignore[arg-type]
    assert str(error) in str(caught.value)


def test_a_system_that_does_not_show_the_processes_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hidden = SimpleNamespace(stat=lambda _: failing(PermissionError(13, "hidden"))())
    monkeypatch.setattr(connect, "os", hidden)
    assert connect._process_numbers() == 0


# ---- whose process can be looked at ----


def test_processes_are_looked_at_on_this_host_whatever_the_nodes_are_called() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    here = replace(Member.here(0), node="rack 7")
    ended = replace(here, rank=1, pid=gone.pid)
    channel = Alone(1.0)
    channel.members = (here, replace(ended, host="elsewhere"))
    assert channel.ended([0, 1]) == set()
    channel.members = (here, replace(ended, node="rack 8"))
    assert channel.ended([0, 1]) == {1}
