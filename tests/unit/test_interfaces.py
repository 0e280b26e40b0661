"""The network interface by which this machine reaches another."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from gear.distributed.channels import interfaces
from gear.distributed.channels.interfaces import interface_towards


def test_this_machine_is_reached_by_the_loopback() -> None:
    assert interface_towards("127.0.0.1") == "lo"


def test_a_name_that_no_server_answers_for_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, look_up = threading.Event(), socket.getaddrinfo

    def wait(*words: Any, **options: Any) -> Any:
        answers.wait(2)
        return look_up(*words, **options)

    monkeypatch.setattr(socket, "getaddrinfo", wait)
    monkeypatch.setattr(interfaces, "RESOLVE_S", 0.05, raising=False)
    assert interface_towards("127.0.0.1") == ""
    answers.set()


def test_nothing_is_known_of_a_host_without_an_address() -> None:
    assert interface_towards("no such host") == ""
