"""Which ranks answer a roll call at a store, and what finding out costs the store."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from gear.distributed.channels.roster import Roll


class Store:
    """A store that counts its questions, and answers the next of them late."""

    def __init__(self) -> None:
        self.late_s = 0.0
        self._kept: dict[str, Any] = {}
        self._lock = threading.Lock()
        self.asked: Counter[str] = Counter()

    def _ask(self, call: str) -> None:
        self.asked[call] += 1
        time.sleep(self.late_s)
        self.late_s = 0.0

    def set(self, key: str, value: str) -> None:
        with self._lock:
            self._ask("set")
            self._kept[key] = value

    def add(self, key: str, more: int) -> int:
        with self._lock:
            self._ask("add")
            self._kept[key] = self._kept.get(key, 0) + more
            return int(self._kept[key])

    def check(self, keys: list[str]) -> bool:
        with self._lock:
            self._ask("check")
            return all(key in self._kept for key in keys)


def test_all_that_answer_are_found_by_all() -> None:
    size, store, found = 6, Store(), {}
    threads = [
        threading.Thread(target=lambda r=r: found.setdefault(r, Roll(store, r, size, 0)(20)))
        for r in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everybody = set(range(size))
    assert found == dict.fromkeys(range(size), everybody)


def test_a_few_silent_ranks_of_many_cost_a_few_questions() -> None:
    size, silent = 512, {17, 300, 511}
    store = Store()
    for rank in set(range(1, size)) - silent:
        store.set(f"call 1 {rank}", "here")
        store.add("call 1", 1)
    store.asked.clear()
    assert Roll(store, 0, size, 0)(0.1) == set(range(size)) - silent
    assert store.asked.total() < 80


def test_a_store_that_is_busy_for_seconds_is_not_taken_for_gone() -> None:
    store = Store()
    store.set("call 1 1", "here")
    store.add("call 1", 1)
    store.late_s = 2.5
    assert Roll(store, 0, 2, 0)(0.1) == {0, 1}
