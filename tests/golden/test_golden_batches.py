"""Not a bit of a batch, of a loader's state or of a buffer is another than was kept (keep.py).

The tiers and the devices of batches share one hash a case, as do ranks that are threads and ranks
that are processes: what a GPU selects, weights and gathers is equal to the host's to the bit. Where
ranks are threads they have no GPU, as memory of a GPU is shared between processes; so the cases of
several ranks on GPUs are played by processes.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from places import Tier
from rank_processes import run_ranks

from golden import keep
from golden.cases import EVICTIONS, LAWS, RANKS, UNITS, Case, all_cases
from golden.checkpoints import CHECKPOINTS, NEWEST, Checkpoint, Draw, all_draws, unpacked
from golden.history import SCHEMA, History
from golden.parts import Hashes, of_all_ranks
from golden.play import play

pytestmark = pytest.mark.subject("library")

WORKER = Path(__file__).with_name("worker.py")
HOST_TIERS = ["host", "shared"]
GPU_PLACES = [
    pytest.param(place, id="-".join(place), marks=pytest.mark.gpu)
    for place in (
        ("pinned",),
        ("device",),
        ("host", "cuda"),
        ("pinned", "cuda", "zero_copy"),
        ("pinned", "cuda", "staged"),
        ("device", "cuda"),
    )
]
GROUP_GPU_PLACES = [
    pytest.param(place, id="-".join(place), marks=pytest.mark.gpu)
    for place in (("device", "cuda"), ("pinned", "cuda", "zero_copy"))
]


def cases_of(law: str, unit: str, ranks: int) -> list[Case]:
    return [c for c in all_cases() if (c.law, c.unit, c.ranks) == (law, unit, ranks)]


def check(found: dict[str, Hashes]) -> None:
    wrong = keep.differences(found, keep.kept_hashes())
    assert not wrong, "not as kept (golden/keep.py):\n" + "\n".join(wrong)


@pytest.mark.parametrize("tier", HOST_TIERS)
@pytest.mark.parametrize(("law", "unit", "ranks"), list(product(LAWS, UNITS, RANKS)))
def test_batches(law: str, unit: str, ranks: int, tier: str) -> None:
    check({case.name: play(case, Tier(tier)) for case in cases_of(law, unit, ranks)})


@pytest.mark.parametrize("place", GPU_PLACES)
@pytest.mark.parametrize(("law", "unit"), list(product(LAWS, UNITS)))
def test_batches_of_gpus(
    request: pytest.FixtureRequest, law: str, unit: str, place: tuple[str, ...]
) -> None:
    pytest.importorskip("torch")
    tier = Tier(*place, rehearsal=request.config.getoption("--rehearse-gpu"))
    check({case.name: play(case, tier) for case in cases_of(law, unit, 1)})


# ---- ranks that are processes ----


def by_processes(ranks: int, cases: list[Case], place: tuple[str, ...]) -> dict[str, Hashes]:
    """Of cases on one node: nodes are emulated for threads only."""
    names = [case.name for case in cases if case.ranks_per_node == ranks]
    transport = "auto" if "cuda" in place else "shared_memory"
    options: Any = {"transport": transport, "place": place}
    said = run_ranks(ranks, [options, *names], program=WORKER)
    return {name: of_all_ranks(rank[name] for rank in said) for name in names}


PROCESSES = [
    pytest.param(2, "host", marks=[pytest.mark.slow, pytest.mark.nightly]),
    pytest.param(2, "shared", marks=[pytest.mark.slow, pytest.mark.nightly]),
    pytest.param(4, "host", marks=[pytest.mark.slow, pytest.mark.nightly]),
    pytest.param(4, "shared", marks=[pytest.mark.slow, pytest.mark.nightly]),
]


@pytest.mark.parametrize(("ranks", "tier"), PROCESSES)
def test_batches_of_processes(ranks: int, tier: str) -> None:
    check(by_processes(ranks, [c for c in all_cases() if c.ranks == ranks], (tier,)))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(240)
@pytest.mark.parametrize("place", GROUP_GPU_PLACES)
@pytest.mark.parametrize("ranks", RANKS[1:])
def test_batches_of_processes_with_gpus(
    request: pytest.FixtureRequest, ranks: int, place: tuple[str, ...]
) -> None:
    pytest.importorskip("torch")
    if request.config.getoption("--rehearse-gpu"):
        place = ("shared",)
    check(by_processes(ranks, [c for c in all_cases() if c.ranks == ranks], place))


# ---- checkpoints ----


def draws_of(checkpoint: Checkpoint) -> list[Draw]:
    return [draw for draw in all_draws() if draw.checkpoint is checkpoint]


@pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=lambda one: one.name)
def test_batches_from_kept_checkpoint(checkpoint: Checkpoint) -> None:
    found = {}
    for draw in draws_of(checkpoint):
        with unpacked(checkpoint) as saved:
            found[draw.name] = draw.play(saved)
    check(found)


@pytest.mark.parametrize("checkpoint", NEWEST, ids=lambda one: one.name)
def test_batches_from_checkpoint_saved_by_this_code(checkpoint: Checkpoint, tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "replay")
    check({draw.name: draw.play(tmp_path / "replay") for draw in draws_of(checkpoint)})


# ---- what the cases are of ----


def test_every_kept_case_is_played() -> None:
    played = [case.name for case in all_cases()] + [draw.name for draw in all_draws()]
    assert sorted(played) == list(keep.kept_hashes())


@pytest.mark.parametrize("evict", EVICTIONS)
def test_histories_have_all_that_may_happen(evict: str) -> None:
    states, pages, cut = set(), set(), False
    for rank in range(4):
        case = Case("uniform", "step", "both", 1, evict)
        with Tier("host").make(SCHEMA, **case.buffer_arguments()) as buffer:
            history = History(buffer, rank)  # holds the writers of the open episodes
            history.begin()
            stats = buffer.stats()
            assert stats["steps_evicted"] > 0
            assert stats["stale_updates"] > 0
            for episode in buffer.episodes():
                states.add(episode.state)
                pages.add(-(-(episode.end - episode.begin) // buffer.page_steps))
                cut |= episode.begin > 0
    assert states == {"open", "terminated", "truncated"}
    assert pages == {1, 2, 3, 4}
    assert cut, "the head of some episode is gone, and its tail is there"
