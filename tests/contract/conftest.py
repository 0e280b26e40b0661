"""One suite, every implementation: each test that takes `tier` runs once for each of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from filled import SCHEMA, Filled

import gear


class Tier:
    """Makes buffers on one tier and gives their memory back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._numbers = itertools.count()

    def arguments(self) -> dict[str, Any]:
        """What places a buffer on this tier; a region name of its own every time."""
        if self.name != "shared":
            return {"tier": self.name}
        return {"tier": "shared", "name": f"gear_test_{os.getpid()}_{next(self._numbers)}"}

    @contextmanager
    def buffer(
        self, schema: gear.Schema, capacity: int, **more: Any
    ) -> Iterator[gear.ReplayBuffer]:
        with gear.ReplayBuffer(schema, capacity, **self.arguments(), **more) as buffer:
            yield buffer

    @contextmanager
    def load(self, path: Path) -> Iterator[gear.ReplayBuffer]:
        with gear.ReplayBuffer.load(path, **self.arguments()) as buffer:
            yield buffer


@pytest.fixture(
    scope="session",
    params=[
        "host",
        "shared",
    ],
)
def tier(request: pytest.FixtureRequest) -> Tier:
    return Tier(request.param)


@pytest.fixture
def filled(tier: Tier) -> Iterator[Filled]:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        yield Filled(buffer)
