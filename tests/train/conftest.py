"""What the trainer's tests share."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import pytest

NEEDED = ("torch", "hydra", "gymnasium", "ale_py", "cv2", "mujoco")

# Without the extra `train` there is nothing to import.
collect_ignore_glob = [] if all(find_spec(name) for name in NEEDED) else ["test_*.py"]


@pytest.fixture
def configure() -> Callable:
    """configure("env=cartpole", "seed=1") -> the configuration that `gear train` would run."""
    from hydra import compose, initialize_config_dir

    from gear.train.app import CONF

    def make(*overrides: str):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return compose("train", list(overrides))

    return make
