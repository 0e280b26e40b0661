"""What the trainer's tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

# What every test of this folder needs; the mark `needs` has what single ones do.
NEEDED = ("torch", "hydra", "gymnasium")

MISSING = [name for name in NEEDED if find_spec(name) is None]

# Without the extra `train` there is nothing to import; the summary says so.
collect_ignore_glob = ["test_*.py"] if MISSING else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if MISSING:
        terminalreporter.write_line(
            f"SKIPPED tests/train: no {', '.join(MISSING)} here; pip install 'gear-replay[train]'"
        )


@pytest.fixture
def configure() -> Callable:
    """configure("env=cartpole", "seed=1") -> the configuration that `gear train` would run."""
    from train.composed import compose

    from gear.train.config import read

    return lambda *overrides: read(compose(*overrides))


@pytest.fixture
def launch(tmp_path: Path) -> Iterator:
    from train.launched import Launch

    launched = Launch(tmp_path)
    yield launched
    launched.close()
