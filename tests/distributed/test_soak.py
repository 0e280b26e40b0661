"""One run of the soak; the program itself makes as many as one likes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

for package in ("torch", "hydra", "gymnasium"):
    pytest.importorskip(package)


@pytest.mark.slow
def test_ranks_that_are_disturbed_end_with_words_and_go_on_to_the_same_end() -> None:
    program = Path(__file__).with_name("soak.py")
    done = subprocess.run(
        [sys.executable, program, "--minutes", "0", "--ranks", "3", "--steps", "600"],
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith(": well")
