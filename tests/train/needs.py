"""Tests that need a package which not every machine has, and which the others do without."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs(*modules: str) -> pytest.MarkDecorator:
    """Skips where one of these cannot be imported; `--require=packages` makes that a failure."""
    missing = [name for name in modules if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"no {', '.join(missing)} here")


mujoco = needs("mujoco")
atari = needs("ale_py", "cv2")
