"""What the tests of this folder run on: a GPU, or host memory in a rehearsal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from places import Tier


@dataclass(frozen=True)
class Gpu:
    """The first GPU.

    Attributes:
        device: what torch and GEAR call it.
        rehearsal: there is none; everything happens in host memory (--rehearse-gpu).
    """

    device: str
    rehearsal: bool

    def place(self, tier: str, path: str | None = None) -> Tier:
        """A tier whose batches go to the GPU; those asked for as NumPy come back from there."""
        return Tier(tier, "cuda", path, rehearsal=self.rehearsal)

    def to_gpu(self, path: str | None = None) -> dict[str, Any]:
        """Arguments of a plain buffer's loader for batches on the GPU."""
        if self.rehearsal:
            return {}
        return {"device": self.device} | ({"path": path} if path else {})

    def synchronize(self) -> None:
        if not self.rehearsal:
            import torch

            torch.cuda.synchronize()


@pytest.fixture(scope="session")
def gpu(request: pytest.FixtureRequest) -> Gpu:
    pytest.importorskip("torch")
    rehearsal = bool(request.config.getoption("--rehearse-gpu"))
    return Gpu("cpu" if rehearsal else "cuda", rehearsal)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/gpu/" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)
