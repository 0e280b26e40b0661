"""What the trainer's tests share."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import pytest

NEEDED = ("torch", "hydra", "gymnasium", "ale_py", "cv2", "mujoco")

MISSING = [name for name in NEEDED if find_spec(name) is None]

# Without the extra `train` there is nothing to import; the summary says so.
collect_ignore_glob = ["test_*.py"] if MISSING else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if MISSING:
        terminalreporter.write_line(
            f"SKIPPED tests/train: no {', '.join(MISSING)} here; pip install 'gear[train]'"
        )


@pytest.fixture
def configure() -> Callable:
    """configure("env=cartpole", "seed=1") -> the configuration that `gear train` would run."""
    from hydra import compose, initialize_config_dir

    from gear.train.app import CONF

    def make(*overrides: str):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return compose("train", list(overrides))

    return make
