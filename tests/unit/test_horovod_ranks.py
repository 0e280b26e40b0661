"""How calls of Horovod's ranks are named: it matches them by that."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace

import pytest

from gear.distributed.channels import horovod
from gear.distributed.channels.horovod import HorovodRanks


def process_set(*ranks: int) -> SimpleNamespace:
    return SimpleNamespace(ranks=list(ranks), rank=lambda: 0, size=lambda: len(ranks))


ALL, PAIR, OTHERS = process_set(0, 1, 2, 3), process_set(0, 1), process_set(2, 3)


@pytest.fixture(autouse=True)
def no_horovod_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    package, fake = ModuleType("horovod"), ModuleType("horovod.torch")
    fake.global_process_set = ALL  # type: ignore[attr-defined]
    package.torch = fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "horovod", package)
    monkeypatch.setitem(sys.modules, "horovod.torch", fake)


def names(groups: Sequence[SimpleNamespace | None]) -> list[str]:
    """Of the calls of these groups, in a process that makes them one after the other."""
    with pytest.MonkeyPatch.context() as process:
        process.setattr(horovod, "_made", type(horovod._made)())
        return [HorovodRanks(one, 1.0)._name for one in groups]


def test_ranks_that_were_in_other_groups_before_name_their_calls_alike() -> None:
    in_pair, in_none, in_others = names([PAIR, None]), names([None]), names([OTHERS, OTHERS, ALL])
    assert in_pair[-1] == in_none[-1] == in_others[-1]


def test_no_two_groups_have_a_name_in_common() -> None:
    made = names([PAIR, OTHERS, None, PAIR, ALL])
    assert len(set(made)) == len(made)
