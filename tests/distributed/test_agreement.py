"""Resuming on all ranks, what ranks must agree on, and writers beside readers of other ranks."""

from __future__ import annotations

import re

import numpy as np
import pytest
from reference import difference

from distributed.groups import Group, groups
from distributed.life import RESUMED, RESUMED_AFTER, RESUMED_BEFORE
from distributed.refusals import BUFFERS, LOADERS, NEED_OTHERS, WRONG, WRONG_WRITERS, attempts
from distributed.toy import SAMPLERS, STEPS

pytestmark = pytest.mark.subject("library")

every_group = pytest.mark.parametrize("group", groups(), indirect=True)


@every_group
@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_goes_on_as_the_whole_one(group: Group, name: str) -> None:
    for rank, arrays in enumerate(group.arrays("resume")):
        whole = {key for key in arrays if key.startswith(f"{name}/whole/")}
        rest = {key for key in arrays if key.startswith(f"{name}/rest/")}
        assert {key.replace("/whole/", "/rest/") for key in whole} == rest
        turns = {int(key.split("/")[2]) for key in whole}
        assert len(turns) >= RESUMED_AFTER - RESUMED_BEFORE - 1  # one may end an epoch
        for key in sorted(whole):
            wrong = difference(arrays[key.replace("/whole/", "/rest/")], arrays[key])
            assert wrong is None, f"rank {rank}, {key}: {wrong}"


@every_group
def test_two_loaders_in_turn_are_independent(group: Group) -> None:
    for arrays in group.arrays("two_loaders"):
        both = {key for key in arrays if "/both/" in key}
        assert len(both) > 100
        for key in both:
            assert difference(arrays[key], arrays[key.replace("/both/", "/alone/")]) is None, key


@every_group
def test_a_rate_limit_holds_all_ranks(group: Group) -> None:
    ranks = group.arrays("rate_limit")
    for arrays in ranks:
        assert "rate limit" in str(arrays["early"]), arrays["early"]
        assert len(arrays["numbers"]) == 4


@every_group
def test_writers_and_readers_of_other_ranks_do_not_block_each_other(group: Group) -> None:
    for rank, arrays in enumerate(group.arrays("pressure")):
        for tier in ("shared", "host"):
            assert arrays[f"{tier}/written"], f"the writer of rank {rank} hung, tier {tier}"
            assert arrays[f"{tier}/evicted"] > 300


REFUSED = [(program, name) for program, tried in attempts().items() for name in tried]
# What the message says, where that is not the name of the case.
WORDS = {name: word for name, (word, _) in (WRONG | WRONG_WRITERS).items()}
WORDS |= {"alpha": "sampler", "unit": "sampler"}
WORDS |= {"empty": "nothing to sample", "owner": "id ", "slot": "id ", "missing": "is no directory"}
WORDS |= {"by_chance": "max_times_sampled", "mixed": "parts of 2 and of 3 ranks"}
WORDS |= {"unwritable": "/dev/null", "closed-loader": "closed", "closed-save": "closed"}
WORDS |= {"save-path": "path '/nowhere/1' on rank 1", "save-path-number": "path 3.5: a string"}
WORDS |= {"state-list": "state", "state-incomplete": "lacks 'draws'"}
# What one rank says is wrong by itself: it says so in its own words.
OF_ONE = {
    *WRONG,
    "closed-loader",
    "closed-save",
    "save-path-number",
    "state",
    "state-list",
    "state-incomplete",
}
OF_ONE -= {"load-path"}
KINDS = {"unwritable": "IoError"}


@every_group
@pytest.mark.parametrize(("program", "name"), REFUSED)
def test_a_wrong_argument_is_refused_on_all_ranks(group: Group, program: str, name: str) -> None:
    if group.size == 1 and name in NEED_OTHERS:
        return
    said = [tuple(arrays[name].tolist()) for arrays in group.arrays(program)]
    if name in WRONG_WRITERS:
        assert {one for one, _ in said[:-1]} <= {"nothing"}, said
        said = said[-1:]
    assert {one for one, _ in said} == {KINDS.get(name, "InvalidArgument")}, said
    for _, text in said:
        assert re.search(r"\[\w+\] ", text) or name in KINDS, text
        assert WORDS.get(name, name) in text, text
    others = said[:-1] if name in OF_ONE else said
    if name != "unwritable":
        assert len(set(others)) <= 1, said
    if name in OF_ONE or name in BUFFERS | LOADERS:
        assert all(f"rank {group.size - 1}" in text for _, text in others), said


@pytest.mark.parametrize("group", groups("gloo", sizes=(2, 4)), indirect=True)
@pytest.mark.parametrize("locality", ["first", "off"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_toys_loss_takes_the_course_of_one_rank(
    group: Group, all_groups, name: str, locality: str
) -> None:
    alone = all_groups(("gloo", 1)).arrays("toy")[0][f"{name}/first"]
    assert len(alone) == STEPS
    assert alone[-10:].mean() < 0.8 * alone[:10].mean(), "the toy does not learn"
    for arrays in group.arrays("toy"):
        np.testing.assert_allclose(arrays[f"{name}/{locality}"], alone, rtol=1e-5)
