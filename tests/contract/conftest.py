"""One suite, every implementation: each test that takes `tier` runs once for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from filled import SCHEMA, Filled
from places import Tier

GPU = pytest.mark.gpu
TIERS = [
    pytest.param(("host",), id="host"),
    pytest.param(("shared",), id="shared"),
    # Kept for a GPU, delivered to host memory.
    pytest.param(("pinned",), id="pinned", marks=GPU),
    pytest.param(("device",), id="device", marks=GPU),
    # Delivered to the GPU: gathered there, or by the host and copied.
    pytest.param(("host", "cuda"), id="host-to-cuda", marks=GPU),
    pytest.param(("pinned", "cuda", "zero_copy"), id="pinned-to-cuda", marks=GPU),
    pytest.param(("pinned", "cuda", "staged"), id="pinned-staged-to-cuda", marks=GPU),
    pytest.param(("device", "cuda"), id="device-to-cuda", marks=GPU),
]


@pytest.fixture(scope="session", params=TIERS)
def tier(request: pytest.FixtureRequest) -> Tier:
    return Tier(*request.param, rehearsal=request.config.getoption("--rehearse-gpu"))


@pytest.fixture
def filled(tier: Tier) -> Iterator[Filled]:
    with tier.buffer(SCHEMA, 64, page_steps=4) as buffer:
        yield Filled(buffer)
