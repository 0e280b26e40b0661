"""The ranks of a group are started once a session, when the first test asks for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from distributed.groups import Group


@pytest.fixture(scope="session")
def all_groups(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, int]], Group]:
    @cache
    def group(key: tuple[str, int]) -> Group:
        return Group(*key, tmp_path_factory.mktemp("group") / f"{key[0]}-{key[1]}")

    return group


@pytest.fixture(scope="session")
def group(request: pytest.FixtureRequest, all_groups: Callable[[tuple[str, int]], Group]) -> Group:
    return all_groups(request.param)
