"""A group of any size, over any transport, gets what one rank with all of the content gets."""

from __future__ import annotations

import pytest

from distributed import checks
from distributed.groups import Group, groups
from distributed.scenarios import SCENARIOS, Scenario

pytestmark = [
    pytest.mark.subject("library"),
    pytest.mark.parametrize("group", groups(), indirect=True),
    pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name),
]


def test_ranks_draw_what_one_rank_draws(group: Group, scenario: Scenario) -> None:
    checks.check_draws(scenario, group.arrays(scenario.name))


def test_batches_are_those_of_one_rank_to_the_bit(group: Group, scenario: Scenario) -> None:
    checks.check_batches(scenario, group.arrays(scenario.name))


def test_ids_name_the_owner_and_its_slot(group: Group, scenario: Scenario) -> None:
    checks.check_ids(scenario, group.arrays(scenario.name))


def test_stats_count_the_bytes_that_travel(group: Group, scenario: Scenario) -> None:
    checks.check_what_travels(
        scenario,
        group.arrays(scenario.name),
        padding=group.name == "nccl",
        path=group.name if group.name in ("fabric", "nccl") else "messages",
    )
