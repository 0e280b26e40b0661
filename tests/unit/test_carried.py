"""A channel over a transport of the core: what it looks at, and how often it asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import gear
from gear import _core
from gear.distributed.channels import carried
from gear.distributed.channels.carried import TransportChannel
from gear.distributed.channels.store_ranks import _told_at
from gear.distributed.member import Member


def channels(size: int) -> list[TransportChannel]:
    failures = [_core.Failure() for _ in range(size)]
    transports = _core.loopback_transports(size, 20.0, failures)
    return [
        TransportChannel(transport, (), failure)
        for transport, failure in zip(transports, failures, strict=True)
    ]


def views(sizes: Sequence[int]) -> list[memoryview]:
    return [memoryview(bytes(size)) for size in sizes]


def test_a_message_of_another_length_than_announced_is_refused() -> None:
    """Also where it fits into a first part, which is as long whatever it holds."""
    first, second = channels(2)
    with ThreadPoolExecutor(2) as pool:
        sent = pool.submit(lambda: first.exchange_bytes(views([0, 3]), [0, 4]))
        with pytest.raises(gear.TransportError) as caught:
            second.exchange_bytes(views([4, 0]), [5, 0])
        sent.exception()
    assert "rank 0 gives 3 bytes and rank 1 expects 5 of it" in str(caught.value)


def test_messages_as_announced_arrive() -> None:
    sizes = [[2, 3], [600, 0]]  # sizes[a][b]: of what a sends b
    both = channels(2)
    with ThreadPoolExecutor(2) as pool:
        came = list(
            pool.map(
                lambda r: both[r].exchange_bytes(views(sizes[r]), [row[r] for row in sizes]),
                range(2),
            )
        )
    assert [[view.nbytes for view in row] for row in came] == [[2, 600], [3, 0]]


@pytest.mark.parametrize(("answer", "questions"), [("", 3), (None, 1)])
def test_a_store_that_does_not_answer_is_not_asked_again_at_once(
    monkeypatch: pytest.MonkeyPatch, answer: str | None, questions: int
) -> None:
    monkeypatch.setattr(carried, "LOOK_S", 0.0)
    asked = []

    def told() -> str | None:
        asked.append(answer)
        return answer

    (transport,) = _core.loopback_transports(1, 20.0, [failure := _core.Failure()])
    channel = TransportChannel(transport, (), failure, told=told)
    for _ in range(3):
        channel.look()
    assert len(asked) == questions


def test_what_the_core_says_of_ranks_names_them_as_the_group_does() -> None:
    failure = _core.Failure()
    (transport,) = _core.loopback_transports(1, 20.0, [failure])
    members = [Member(0, "n", "h", "host", 4711, 1)]
    channel = TransportChannel(transport, members, failure)
    raw = "[transport] rank 0 closed its loader or ended while others wait for it: look"
    channel.pass_on(gear.TransportError(raw), "next")  # of something else than this group
    failure.tell(raw)
    with pytest.raises(gear.TransportError) as caught:
        channel.pass_on(gear.TransportError(raw), "next")
    assert str(caught.value) == raw.replace("rank 0", "rank 0 (pid 4711 on host)")
    channel.pass_on(gear.InvalidArgument("of the user"), "next")


class Store:
    def __init__(self, check: Callable[[], bool]) -> None:
        self._check = check

    def check(self, keys: list[str]) -> bool:
        return self._check()


def gone() -> Any:
    raise RuntimeError("gone")


def test_silence_is_told_from_nothing() -> None:
    assert _told_at(Store(lambda: False)) == ""
    assert _told_at(Store(gone)) is None
