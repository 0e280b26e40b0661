"""The library of the process group gear_emu, for the tests that need it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from docs.documents import ROOT


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Most of them start processes that import torch."""
    for item in items:
        if "library" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.subject("emulator"))


@pytest.fixture(scope="session")
def library() -> None:
    """Built, unless it is: nothing of it needs more than torch and a compiler."""
    pytest.importorskip("torch")
    build = [ROOT / "tools" / "c10d.sh", "--emulator", f"--python={sys.executable}"]
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(build, env=plain, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
